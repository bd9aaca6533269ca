"""Converts a chat completion's messages to the turns of a task that takes a conversation. Pure.

Every message becomes one turn, in order; `developer` is `system`. Keys without content (`"refusal": null`), as clients
send them with earlier answers, are left out. An earlier answer in audio is read by its transcript.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from walkgraph.service.http.dialects import parameter
from walkgraph.service.http.problems import pointer
from walkgraph.service.openai.chat_schemas import Message, read_part
from walkgraph.service.openai.serving import Serving, unsupported

_ROLES = {"developer": "system"}
_READ = {"assistant": ("tool_calls",), "tool": ("tool_call_id",)}
"""Role -> the keys beside `content` that its turns keep."""
_EMPTY: tuple[Any, ...] = (None, [], {}, "")


def turns_of(messages: Sequence[Message], serving: Serving, model: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(the native inputs, pointer into them -> pointer into the request). Raises Unprocessable for anything that the
    task can't take."""
    name = serving.conversation or ""
    origins = {f"/inputs/{name}": "/messages"}
    turns: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        at = f"/messages/{i}"
        turns.append(_turn(message, serving, model, at))
        origins[f"/inputs/{name}/{i}"] = at
        for key in ("role", "content", "tool_calls", "tool_call_id"):
            origins[f"/inputs/{name}/{i}/{key}"] = f"{at}/{key}"
        for k in range(len(message.content) if isinstance(message.content, list) else 0):
            origins[f"/inputs/{name}/{i}/content/{k}"] = f"{at}/content/{k}"
    return {name: turns}, origins


def _turn(message: Message, serving: Serving, model: str, at: str) -> dict[str, Any]:
    role = _ROLES.get(message.role, message.role)
    taken = next((kinds for one, kinds in serving.turns.items() if one == role), None)
    if taken is None:
        have = ", ".join(f"`{one}`" for one in serving.turns)
        text = f"`{model}` has no place for messages of role `{message.role}`; it takes {have}"
        raise unsupported(f"{at}/role", "unsupported_value", text)
    more = {key: value for key, value in (message.model_extra or {}).items() if value not in _EMPTY}
    content = _content(message, taken, model, at)
    if role == "assistant" and "audio" in more:
        spoken = more.pop("audio")
        content = _transcript(spoken, f"{at}/audio") if content in _EMPTY else content
    for name in more:
        if name not in _READ.get(role, ()):
            where = at + pointer([name[:80]])
            raise unsupported(where, "unknown_parameter", f"messages of role `{message.role}` have no such key")
    if content is None and not more:
        raise unsupported(f"{at}/content", "missing_required_parameter", f"`{parameter(at)}.content` is missing")
    return {"role": role, "content": content, **more}


def _transcript(spoken: Any, at: str) -> str:
    """The text of an earlier answer in audio. Its sound isn't kept here, so the id alone says nothing."""
    told = cast(Mapping[str, Any], spoken).get("transcript") if isinstance(spoken, dict) else None
    if not isinstance(told, str):
        message = "audio isn't kept by its id; send the answer's text as `content`, or its `audio.transcript`"
        raise unsupported(at, "unsupported_value", message)
    return told


def _content(message: Message, taken: frozenset[str], model: str, at: str) -> Any:
    if not isinstance(message.content, list):
        return message.content
    found: list[dict[str, Any]] = []
    for k, part in enumerate(message.content):
        kind, value, _ = read_part(part)
        if kind not in taken:
            have = " and ".join(f"`{one}`" for one in sorted(taken)) or "no parts"
            text = f"`{model}` takes {have} in messages of role `{message.role}`, no `{kind}`; leave that out"
            raise unsupported(f"{at}/content/{k}", "unsupported_value", text)
        found.append({"type": kind, "text" if kind == "text" else "data": value})
    return found
