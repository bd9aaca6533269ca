"""Conversations: the values of inputs and ports of modality `messages`.

A conversation is turns in order; a turn has a role and parts. Tool calls of an assistant's turn, and the id of the call
that a tool's turn answers, are kept as data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

MESSAGES = "messages"
"""The modality of a conversation."""
Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)

TURN_VALUES: Mapping[str, Literal["string", "integer", "boolean"]] = {
    "@turn.role": "string",
    "@turn.index": "integer",
    "@turn.last": "boolean",
    "@turn.calls": "string",
    "@turn.call_id": "string",
}
"""The values that steps inside `for: turns` can bind, and read in conditions: the role, the position from 0, whether it
is the last turn, its tool calls as JSON (empty if it has none), and the id of the call that it answers (empty if
none)."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


@dataclass(frozen=True, slots=True)
class TurnPart:
    modality: str
    value: Any
    """A text, encoded media, or a tensor."""


@dataclass(frozen=True, slots=True)
class Turn:
    role: Role
    parts: tuple[TurnPart, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    turns: tuple[Turn, ...]
    tools: tuple[str, ...] = ()
    """Definitions of the functions that the answer may call, each as JSON."""
    call: str | None = None
    """The function that the answer must call; empty for any of `tools`, None for an answer that may do without."""

    def as_text(self) -> str:
        """For people to read: a line for each turn, with the texts of its parts and the kinds of the others."""
        return "\n".join(
            f"{turn.role}: {' '.join(str(p.value) if p.modality == 'text' else f'[{p.modality}]' for p in turn.parts)}"
            for turn in self.turns
        )


def calls_text(calls: Sequence[Any]) -> str:
    """Tool calls as JSON, in the order of their keys here; empty if there are none."""
    if not calls:
        return ""
    written = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    return json.dumps(written, ensure_ascii=False, separators=(",", ":"))
