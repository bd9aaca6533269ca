"""Reads a conversation from clients' JSON, and describes it as JSON Schema.

    [{"role": "system", "content": "Answer in French."},
     {"role": "user", "content": [{"type": "image", "data": "..."}, {"type": "text", "text": "What is this?"}]},
     {"role": "assistant", "content": null,
      "tool_calls": [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]},
     {"role": "tool", "tool_call_id": "1", "content": "a cat"}]

Functions that the answer may call stand beside the turns: `{"turns": [...], "tools": [{"type": "function", ...}]}`.
With `"call": true` it must call one of them, with `"call": "look"` that one.
Parts are those of the task API. Tool calls have the shape of OpenAI's API.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

import msgspec

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import ROLES, Role
from walkgraph.graph.problems import nearest
from walkgraph.service.http import limits
from walkgraph.service.values import values
from walkgraph.wire import messages as m

Taken = Mapping[Role, Set[str]]
"""Role -> the modalities of parts that the task takes in such turns."""

_KEYS = ("role", "content", "tool_calls", "tool_call_id")


# ── the schema ──────────────────────────────────────────────────────────────────────────────────


def schema(taken: Taken, part: Mapping[str, Any], description: str, *, whole: bool = False) -> dict[str, Any]:
    """JSON Schema of a conversation. `part`: that of one part. `whole`: the task takes conversations whole."""
    text = {"type": "string", "maxLength": limits.TEXT_CHARACTERS}
    content = {"anyOf": [text, {"type": "array", "maxItems": limits.PARTS, "items": dict(part)}, {"type": "null"}]}
    function = _closed({"name": {"type": "string"}, "arguments": text}, ["name", "arguments"])
    call = _closed({"id": {"type": "string"}, "type": {"const": "function"}, "function": function}, ["id", "function"])
    calls = {"type": "array", "maxItems": limits.TOOL_CALLS, "items": call}
    turn = _closed(
        {
            "role": {"enum": [role for role in ROLES if role in taken]},
            "content": content,
            "tool_calls": calls,
            "tool_call_id": {"type": "string"},
        },
        ["role"],
    )
    if narrow := _narrow(taken):
        turn["allOf"] = narrow
    turns = {"type": "array", "minItems": 1, "maxItems": limits.TURNS, "items": turn, "description": description}
    tools = {"type": "array", "maxItems": limits.TOOL_CALLS, "items": {"type": "object"}}
    call = {"anyOf": [{"const": True}, {"type": "string"}]}
    return {"anyOf": [turns, _closed({"turns": turns, "tools": tools, "call": call}, ["turns"])]} if whole else turns


def _narrow(taken: Taken) -> list[dict[str, Any]]:
    """Schemas of the roles whose turns take fewer kinds of parts than others."""
    most = frozenset[str]().union(*taken.values())
    found: list[dict[str, Any]] = []
    for role in ROLES:
        kinds = taken.get(role, most)
        if kinds != most:
            parts = {"items": {"properties": {"type": {"enum": sorted(kinds)}}}}
            found.append({"if": {"properties": {"role": {"const": role}}}, "then": {"properties": {"content": parts}}})
    return found


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


# ── from the client ─────────────────────────────────────────────────────────────────────────────


def read(taken: Taken, given: Any, pointer: str, *, calls: bool, whole: bool = False) -> m.Conversation:
    """The conversation. `calls`: the task reads tool calls. `whole`: it takes conversations whole, so that they may
    have tools. Raises InvalidInput, with the pointer, at the first fault."""
    if isinstance(given, dict):
        fields = cast(dict[str, Any], given)
        unknown = next((key for key in fields if key not in ("turns", "tools", "call")), None)
        if unknown is not None:
            raise InvalidInput("a conversation has `turns`, `tools` and `call`", f"{pointer}/{unknown[:80]}")
        tools = _tools(fields.get("tools"), f"{pointer}/tools")
        if tools and not whole:
            raise InvalidInput("no step of the task reads tools; leave them out", f"{pointer}/tools")
        turns = read(taken, fields.get("turns"), pointer, calls=calls).turns
        return m.Conversation(turns=turns, tools=tools, call=_demanded(fields.get("call"), tools, f"{pointer}/call"))
    if not isinstance(given, list):
        raise InvalidInput('this must be a list of turns (`{"role": "user", "content": "..."}`)', pointer)
    listed = cast(list[Any], given)
    if not 0 < len(listed) <= limits.TURNS:
        raise InvalidInput(f"send 1 to {limits.TURNS} turns; there are {len(listed)}", pointer)
    found: list[m.Turn] = []
    size = parts = 0
    for i, turn in enumerate(listed):
        found.append(_turn(taken, turn, f"{pointer}/{i}"))
        if found[-1].tool_calls and not calls:
            raise InvalidInput("no step of the task reads tool calls; leave them out", f"{pointer}/{i}/tool_calls")
        size += sum(values.size_of(part.value) for part in found[-1].parts)
        size += sum(len(call.arguments) for call in found[-1].tool_calls)
        parts += len(found[-1].parts)
        if parts > limits.CONVERSATION_PARTS:
            raise InvalidInput(f"a conversation may have {limits.CONVERSATION_PARTS} parts; send fewer", pointer)
        if size > limits.CONVERSATION_BYTES:
            message = f"a conversation may have {limits.CONVERSATION_BYTES} bytes; leave out earlier turns"
            raise InvalidInput(message, f"{pointer}/{i}")
    return m.Conversation(turns=tuple(found))


def _turn(taken: Taken, given: Any, pointer: str) -> m.Turn:
    if not isinstance(given, dict):
        raise InvalidInput('a turn is an object (`{"role": "user", "content": "..."}`)', pointer)
    fields = cast(dict[str, Any], given)
    unknown = next((key for key in fields if key not in _KEYS), None)
    if unknown is not None:
        raise InvalidInput(f"a turn has no such key; {nearest(unknown, _KEYS)}", f"{pointer}/{unknown[:80]}")
    role: Any = fields.get("role")
    if role not in taken:
        have = ", ".join(f"`{one}`" for one in ROLES if one in taken)
        raise InvalidInput(f"the task takes no turns of this role; it takes {have}", f"{pointer}/role")
    calls = _calls(role, fields.get("tool_calls"), f"{pointer}/tool_calls")
    content = fields.get("content")
    if content is None and not calls:
        raise InvalidInput("`content` is missing; add it", pointer)
    return m.Turn(
        role=role,
        parts=_parts(taken[role], content, f"{pointer}/content"),
        tool_calls=calls,
        tool_call_id=_call_id(role, fields.get("tool_call_id"), f"{pointer}/tool_call_id"),
    )


def _parts(kinds: Set[str], given: Any, pointer: str) -> tuple[m.Part, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        if values.TEXT not in kinds:
            raise InvalidInput(f"the task takes no text in such turns; it takes {_listed(kinds)}", pointer)
        return (m.Part(modality=values.TEXT, value=values.read(values.TEXT, given, pointer)),)
    if not isinstance(given, list):
        raise InvalidInput("this must be a text or a list of parts", pointer)
    parts = cast(list[Any], given)
    if len(parts) > limits.PARTS:
        raise InvalidInput(f"a turn may have {limits.PARTS} parts; send fewer", pointer)
    return tuple(_part(kinds, part, f"{pointer}/{i}") for i, part in enumerate(parts))


def _part(kinds: Set[str], given: Any, pointer: str) -> m.Part:
    kind: Any = cast(dict[str, Any], given).get("type") if isinstance(given, dict) else None
    if kind not in kinds:
        raise InvalidInput(f"a part of such a turn needs a `type` out of {_listed(kinds)}", pointer)
    return m.Part(modality=kind, value=values.read(kind, given, pointer))


def _listed(kinds: Set[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in sorted(kinds)) or "none"


def _calls(role: str, given: Any, pointer: str) -> tuple[m.ToolCall, ...]:
    if given is None or given == []:
        return ()
    if role != "assistant":
        raise InvalidInput("only turns of role `assistant` have tool calls; leave this out", pointer)
    calls: Sequence[Any] = cast(list[Any], given) if isinstance(given, list) else ()
    if not 0 < len(calls) <= limits.TOOL_CALLS:
        raise InvalidInput(f"send a list of 1 to {limits.TOOL_CALLS} tool calls", pointer)
    return tuple(_call(call, f"{pointer}/{i}") for i, call in enumerate(calls))


def _call(given: Any, pointer: str) -> m.ToolCall:
    fields = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    function = fields.get("function")
    named = cast(dict[str, Any], function) if isinstance(function, dict) else {}
    id_, name, arguments = fields.get("id"), named.get("name"), named.get("arguments")
    if not (isinstance(id_, str) and isinstance(name, str) and isinstance(arguments, str)):
        message = 'a tool call is `{"id": "...", "type": "function", "function": {"name": "...", "arguments": "{}"}}`'
        raise InvalidInput(message, pointer)
    if fields.get("type", "function") != "function" or set(fields) - {"id", "type", "function", "index"}:
        raise InvalidInput("a tool call has `id`, `type` (`function`) and `function`, and nothing else", pointer)
    if max(len(id_), len(name)) > limits.NAME_CHARACTERS or len(arguments) > limits.TEXT_CHARACTERS:
        raise InvalidInput("the tool call is too long; shorten it", pointer)
    return m.ToolCall(id=id_, name=name, arguments=arguments)


def _tools(given: Any, pointer: str) -> tuple[str, ...]:
    tools: Sequence[Any] = () if given is None else cast(list[Any], given) if isinstance(given, list) else (None,)
    if len(tools) > limits.TOOL_CALLS:
        raise InvalidInput(f"send at most {limits.TOOL_CALLS} tools", pointer)
    written = tuple(_tool(tool, f"{pointer}/{i}") for i, tool in enumerate(tools))
    if sum(map(len, written)) > limits.TEXT_CHARACTERS:
        raise InvalidInput(f"tools may have {limits.TEXT_CHARACTERS} characters; shorten them", pointer)
    return written


def _tool(given: Any, pointer: str) -> str:
    fields = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    function = fields.get("function")
    name = cast(dict[str, Any], function).get("name") if isinstance(function, dict) else None
    if fields.get("type") != "function" or not isinstance(name, str) or not 0 < len(name) <= limits.NAME_CHARACTERS:
        message = 'a tool is `{"type": "function", "function": {"name": "...", "parameters": {...}}}`'
        raise InvalidInput(message, pointer)
    return msgspec.json.encode(given).decode()


def _demanded(given: Any, tools: Sequence[str], pointer: str) -> str | None:
    """The function that the answer must call, empty for any; None if it need not."""
    if given is None:
        return None
    names = [msgspec.json.decode(tool)["function"]["name"] for tool in tools]
    if not names or (given is not True and given not in names):
        have = ", ".join(f"`{name}`" for name in names) or "none"
        raise InvalidInput(f"`call` is true, or the name of one of `tools`; there are {have}", pointer)
    return "" if given is True else given


def _call_id(role: str, given: Any, pointer: str) -> str | None:
    if given is None:
        return None
    if role != "tool":
        raise InvalidInput("only turns of role `tool` have a `tool_call_id`; leave this out", pointer)
    if not isinstance(given, str) or not 0 < len(given) <= limits.NAME_CHARACTERS:
        raise InvalidInput(f"this must be a text of 1 to {limits.NAME_CHARACTERS} characters", pointer)
    return given
