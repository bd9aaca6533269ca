"""Conversations as operators read and extend them."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.graph.conversation import Conversation, Turn, TurnPart
from walkgraph.models.agent.components import MOST_BYTES, MOST_CHARACTERS, MOST_TURNS
from walkgraph.models.agent.tool_calls import Tool


def conversation(call: Call, port: str = "messages") -> Conversation:
    """The conversation of an input. Raises CallFailed for another value."""
    value = call.inputs.get(port)
    if value is None:
        return Conversation(())
    if not isinstance(value, Conversation):
        raise CallFailed(f"`{call.node}` takes a conversation", port, code="invalid_input")
    return value


def bounded(call: Call, found: Conversation) -> Conversation:
    """Raises CallFailed for a conversation that is too long."""
    characters = sum(map(len, texts(found.turns))) + sum(map(len, found.tools))
    media = sum(len(part.value) for turn in found.turns for part in turn.parts if isinstance(part.value, bytes))
    if media > MOST_BYTES:
        message = f"`{call.node}`: the pictures and sounds of a conversation have at most {MOST_BYTES} bytes"
        raise CallFailed(f"{message}; add fewer", "messages", code="invalid_input")
    if len(found.turns) > MOST_TURNS or characters > MOST_CHARACTERS:
        message = f"`{call.node}`: a conversation has at most {MOST_TURNS} turns and {MOST_CHARACTERS} characters"
        raise CallFailed(f"{message}; end it earlier, or recall fewer turns", "messages", code="invalid_input")
    return found


def texts(turns: Iterable[Turn]) -> Iterable[str]:
    return (part.value for turn in turns for part in turn.parts if part.modality == "text")


def text_of(turn: Turn) -> str:
    return "".join(texts((turn,)))


def text_part(text: str) -> tuple[TurnPart, ...]:
    return (TurnPart("text", text),) if text else ()


def tools_of(found: Conversation) -> list[Tool]:
    """The tools that a conversation names."""
    functions = [_function(json.loads(text)) for text in found.tools]
    return [Tool(str(one["name"]), one.get("parameters") or {}) for one in functions]


def read_tools(call: Call) -> tuple[str, ...]:
    """The tools of the parameter `tools`, each in OpenAI's form. Raises CallFailed."""
    try:
        read: Any = json.loads(str(call.params["tools"]))
    except (ValueError, RecursionError):
        raise _bad_tools(call, "is not JSON") from None
    given: Sequence[Any] = cast(list[Any], read) if isinstance(read, list) else [None]
    functions = [_function(one) for one in given]
    names = [one.get("name") for one in functions]
    if not all(isinstance(name, str) and name for name in names):
        raise _bad_tools(call, "is not a list of tools, each with a `name`")
    if len(set(names)) < len(names):
        raise _bad_tools(call, "has two tools of one name")
    if not all(isinstance(one.get("parameters", {}), dict) for one in functions):
        raise _bad_tools(call, "has `parameters` that are no JSON Schema")
    return tuple(json.dumps({"type": "function", "function": one}, ensure_ascii=False) for one in functions)


def _bad_tools(call: Call, what: str) -> CallFailed:
    return CallFailed(f"the parameter `tools` of `{call.node}` {what}", code="invalid_input")


def _function(given: Any) -> dict[str, Any]:
    """A tool's own fields, whether OpenAI's wrapping is around them or not."""
    fields = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    inner = fields.get("function")
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else fields
