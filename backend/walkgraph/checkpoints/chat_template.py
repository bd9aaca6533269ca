"""How a family writes a conversation as one prompt: a template as data, and its rendering.

A template is literal text and fields, chosen by the role of a turn and by conditions. The fields, edits and conditions
are those listed here, so that a template can do nothing else. Rendering keeps special tokens (`<|im_start|>`) and text
apart: their names in a client's text stay text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import Conversation, Role, ToolCall, Turn

FieldName = Literal[
    "role",  # of the turn
    "content",  # the texts of the turn
    "reasoning",  # the thoughts in an assistant's turn
    "system",  # the content of a leading system turn, where the template sets it apart
    "calls",  # the tool calls of the turn
    "name",  # of a tool call
    "arguments",  # of a tool call: JSON
    "id",  # of a tool call, or of the call that a tool's turn answers
    "tools",  # the functions that the answer may call
    "definition",  # of one of them: JSON
    "function",  # the function that the answer must call
]
Edit = Literal[
    "strip",  # without white space around it
    "strip_lines",  # without empty lines around it
    "lstrip_lines",  # without empty lines before it
    "json",  # as a JSON string
    "indented",  # JSON over several lines
]
Condition = Literal[
    "last",  # the last turn
    "calls",  # the turn has tool calls
    "content",  # the turn has text
    "reasoning",  # the turn has reasoning
    "system",  # a leading system turn is set apart
    "after_query",  # no turn of the user follows
    "run_begins",  # the turn before it has another role
    "run_ends",  # the turn after it has another role
    "first_call",  # of the turn's tool calls
    "thinking",  # the request asks for thinking
    "tools",  # there are functions that the answer may call
    "first",  # the first turn, other than a system turn that is set apart
    "call",  # the answer must call a function
    "named",  # and it is known which one
]


@dataclass(frozen=True, slots=True)
class Field:
    name: FieldName
    edit: Edit | None = None


@dataclass(frozen=True, slots=True)
class When:
    """Text that stands there only under conditions: all of `all`, one of `any` if there are some, none of `none`."""

    text: "Form"
    all: frozenset[Condition] = frozenset()
    any: frozenset[Condition] = frozenset()
    none: frozenset[Condition] = frozenset()

    def holds(self, known: frozenset[Condition]) -> bool:
        return self.all <= known and not self.none & known and (not self.any or bool(self.any & known))


Form = tuple[str | Field | When, ...]
"""A template form: literal text, fields and conditional text, one after the other."""


@dataclass(frozen=True, slots=True)
class Calls:
    """How tool calls are written."""

    each: Form
    between: str = ""
    most: int | None = None
    """The most calls of one turn."""
    id_length: int | None = None
    """The length that ids must have."""
    keep_arguments: bool = False
    """Arguments stay as the client wrote them; otherwise they are read and written anew."""


CallForm = Literal[
    "tagged",  # `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, between texts or several times
    "whole",  # the answer is nothing but `{"name": ..., "parameters": {...}}`
]


@dataclass(frozen=True, slots=True)
class Thinking:
    """The marks around an assistant's reasoning in its text, from which the reasoning is taken out."""

    open: str
    close: str
    not_a_query: tuple[str, str]
    """A user's text between these counts as no query."""

    def apart(self, content: str) -> tuple[str, str]:
        """The reasoning in an assistant's text, and the answer behind it."""
        if self.close not in content:
            return "", content
        before, *_, answer = content.split(self.close)
        return before.rstrip("\n").split(self.open)[-1].lstrip("\n"), answer.lstrip("\n")


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    name: str
    special: tuple[str, ...]
    """Tokens of their own in the literal text."""
    roles: Mapping[Role, Form]
    answer: Form
    """Opens the answer, after all turns."""
    begin: Form = ()
    """Before all turns."""
    system_apart: bool = False
    """A leading system turn is no turn: `begin` or another turn writes it."""
    alternate: bool = False
    """Turns of user and assistant must alternate, tools and calls aside."""
    calls: Calls | None = None
    tools: Form | None = None
    """How each function is written that the answer may call."""
    called: CallForm | None = None
    """How an answer calls functions."""
    opening: Form = ()
    """Begins the call that an answer must make, behind `answer`: the model writes the rest."""
    thinking: Thinking | None = None
    media: Mapping[str, str] = field(default_factory=dict[str, str])
    """Modality of a part that is no text -> how it is written."""
    joint: str = "\n"
    """Between the parts of a turn."""


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token of its own."""

    text: str


Piece = str | SpecialToken


def render(template: ChatTemplate, conversation: Conversation, *, thinking: bool = True) -> tuple[Piece, ...]:
    """The prompt of a conversation: special tokens, and the text between them. Raises InvalidInput, with a pointer
    into the conversation (`/2/role`), for one that the template can't write."""
    if conversation.tools and template.tools is None:
        raise InvalidInput(f"`{template.name}` writes no tools; leave them out", "/tools")
    if conversation.call is not None and not template.opening:
        raise InvalidInput(f"`{template.name}` begins no calls; leave this out", "/call")
    return _merged(_Rendering(template, conversation, thinking).pieces())


def opening_of(template: ChatTemplate, call: str) -> str:
    """The text with which the prompt begins the call that an answer must make. `call`: as in `Conversation`."""
    return text_of(_merged(_Rendering(template, Conversation((), (), call), thinking=False).opening()))


def _merged(found: Iterator[Piece]) -> tuple[Piece, ...]:
    merged: list[Piece] = []
    for is_mark, run in groupby(found, key=lambda piece: isinstance(piece, SpecialToken)):
        pieces = list(run)
        merged += pieces if is_mark else ["".join(piece for piece in pieces if isinstance(piece, str))]
    return tuple(piece for piece in merged if piece)


def text_of(pieces: Sequence[Piece]) -> str:
    """The prompt as one text."""
    return "".join(piece.text if isinstance(piece, SpecialToken) else piece for piece in pieces)


@dataclass(frozen=True, slots=True)
class _Spot:
    """The values that fields and conditions read."""

    known: frozenset[Condition]
    values: Mapping[FieldName, str]
    turn: Turn | None = None
    pointer: str = ""


class _Rendering:
    def __init__(self, template: ChatTemplate, conversation: Conversation, thinking: bool) -> None:
        self._template, self._tools, turns = template, conversation.tools, conversation.turns
        self._always: frozenset[Condition] = frozenset[Condition]({"thinking"} if thinking else ())
        self._always |= frozenset[Condition]({"tools"} if self._tools else ())
        self._call = conversation.call
        self._always |= frozenset[Condition](
            ({"call", "named"} if self._call else {"call"}) if self._call is not None else ()
        )
        self._system = ""
        self._first = 0
        if template.system_apart and turns and turns[0].role == "system":
            self._system, self._first = self._content(turns[0], "/0"), 1
            self._always |= frozenset[Condition]({"system"})
        self._turns = turns
        self._roles = [turn.role for turn in turns]
        self._query = self._last_query()

    def pieces(self) -> Iterator[Piece]:
        outside = _Spot(self._always, {"system": self._system})
        yield from self._written(self._template.begin, outside)
        if self._template.alternate:
            self._check_order()
        for i, turn in enumerate(self._turns[self._first :], self._first):
            if turn.role not in self._template.roles:
                raise InvalidInput(f"`{self._template.name}` has no turns of role `{turn.role}` here", f"/{i}/role")
            yield from self._written(self._template.roles[turn.role], self._spot(turn, i))
        yield from self._written(self._template.answer, outside)
        if self._call is not None:
            yield from self.opening()

    def opening(self) -> Iterator[Piece]:
        yield from self._written(self._template.opening, _Spot(self._always, {"function": self._call or ""}))

    def _spot(self, turn: Turn, i: int) -> _Spot:
        content, reasoning = self._content(turn, f"/{i}"), ""
        thinking = self._template.thinking
        if thinking is not None and turn.role == "assistant":
            reasoning, content = thinking.apart(content)
        roles = self._roles
        holds: Mapping[Condition, bool] = {
            "first": i == self._first,
            "last": i == len(roles) - 1,
            "calls": bool(turn.tool_calls),
            "content": bool(content),
            "reasoning": bool(reasoning),
            "after_query": i > self._query,
            "run_begins": i == self._first or roles[i - 1] != turn.role,
            "run_ends": i == len(roles) - 1 or roles[i + 1] != turn.role,
        }
        known = self._always | frozenset[Condition](name for name, so in holds.items() if so)
        values: dict[FieldName, str] = {
            "role": turn.role,
            "content": content,
            "reasoning": reasoning,
            "system": self._system,
            "id": turn.tool_call_id or "",
        }
        if turn.role == "tool":
            self._check_id(values["id"], f"/{i}/tool_call_id")
        return _Spot(known, values, turn, f"/{i}")

    def _content(self, turn: Turn, pointer: str) -> str:
        found: list[str] = []
        for k, part in enumerate(turn.parts):
            if part.modality == "text" and isinstance(part.value, str):
                found.append(part.value)
            elif part.modality in self._template.media:
                found.append(self._template.media[part.modality])
            else:
                message = f"`{self._template.name}` writes no parts of type `{part.modality}`; send text"
                raise InvalidInput(message, f"{pointer}/content/{k}")
        return self._template.joint.join(found)

    def _last_query(self) -> int:
        """The last turn of the user that asks something; without one, the last turn."""
        thinking = self._template.thinking
        for i in reversed(range(len(self._turns)) if thinking is not None else ()):
            if self._turns[i].role == "user" and thinking is not None:
                opening, closing = thinking.not_a_query
                content = self._content(self._turns[i], f"/{i}")
                if not (content.startswith(opening) and content.endswith(closing)):
                    return i
        return len(self._turns) - 1

    def _check_order(self) -> None:
        """Refuse turns that don't alternate, as the published template does."""
        count = 0
        for i, turn in enumerate(self._turns[self._first :], self._first):
            if turn.role == "tool" or turn.tool_calls:
                continue
            if (turn.role == "user") != (count % 2 == 0):
                message = f"in `{self._template.name}` turns of user and assistant alternate, and the user's is first"
                raise InvalidInput(message, f"/{i}/role")
            count += 1

    # ── forms ──

    def _written(self, form: Form, spot: _Spot) -> Iterator[Piece]:
        for piece in form:
            match piece:
                case str():
                    yield from _cut(piece, self._template.special)
                case Field(name="calls"):
                    yield from self._calls(spot)
                case Field(name="tools"):
                    for tool in self._tools:
                        values: dict[FieldName, str] = {**spot.values, "definition": _json(json.loads(tool))}
                        yield from self._written(self._template.tools or (), replace(spot, values=values))
                case Field(name=name, edit=edit):
                    # A client's text is text, whatever it looks like.
                    yield _edited(spot.values.get(name, ""), edit)
                case When():
                    if piece.holds(spot.known):
                        yield from self._written(piece.text, spot)

    def _calls(self, spot: _Spot) -> Iterator[Piece]:
        form, calls = self._template.calls, spot.turn.tool_calls if spot.turn else ()
        pointer = f"{spot.pointer}/tool_calls"
        if form is None:
            raise InvalidInput(f"`{self._template.name}` writes no tool calls; leave them out", pointer)
        if form.most is not None and len(calls) > form.most:
            raise InvalidInput(f"`{self._template.name}` has at most {form.most} tool call a turn", pointer)
        for i, call in enumerate(calls):
            if i:
                yield from _cut(form.between, self._template.special)
            self._check_id(call.id, f"{pointer}/{i}/id")
            values: dict[FieldName, str] = {
                **spot.values,
                **_call_values(call, form, f"{pointer}/{i}/function/arguments"),
            }
            known = spot.known | {"first_call"} if i == 0 else spot.known
            yield from self._written(form.each, replace(spot, values=values, known=known))

    def _check_id(self, id_: str, pointer: str) -> None:
        length = self._template.calls.id_length if self._template.calls else None
        if length is not None and len(id_) != length:
            raise InvalidInput(f"`{self._template.name}` has ids of tool calls with {length} characters", pointer)


def _call_values(call: ToolCall, form: Calls, pointer: str) -> dict[FieldName, str]:
    arguments = call.arguments
    if not form.keep_arguments:
        try:
            read: Any = json.loads(arguments)
        except (ValueError, RecursionError):
            raise InvalidInput("the arguments of this tool call are not JSON", pointer) from None
        arguments = _json(read)
    return {"name": call.name, "arguments": arguments, "id": call.id}


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _edited(text: str, edit: Edit | None) -> str:
    match edit:
        case None:
            return text
        case "strip":
            return text.strip()
        case "strip_lines":
            return text.strip("\n")
        case "lstrip_lines":
            return text.lstrip("\n")
        case "json":
            return _json(text)
        case "indented":
            return _json(json.loads(text), 4)


def _cut(text: str, special: Sequence[str]) -> Iterator[Piece]:
    """Literal text of a template, cut at its special tokens; of two at one place the longer one."""
    while text:
        at, token = min(
            ((text.find(one), one) for one in special if one in text),
            key=lambda found: (found[0], -len(found[1])),
            default=(len(text), ""),
        )
        if at:
            yield text[:at]
        if token:
            yield SpecialToken(token)
        text = text[at + len(token) :]
