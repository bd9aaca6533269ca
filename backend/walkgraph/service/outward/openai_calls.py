"""The components `openai.*`: a call -> a request in OpenAI's form, the server's answer -> outputs."""

import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pybase64

from walkgraph.errors import InvalidInput
from walkgraph.media_types import mime_of
from walkgraph.models.openai.components import MOST_TEXTS
from walkgraph.servers import SECRET, parse_url
from walkgraph.service.http import limits
from walkgraph.service.outward.exchange import CallOutFailed, Incoming, Outgoing, Outside
from walkgraph.service.outward.given import Given
from walkgraph.wire import messages as m

MOST_BYTES = 64 * 1024 * 1024
"""The largest answer: a picture in base64, or many embeddings."""
_KIND = re.compile(r"[a-z_]{1,64}")
_AUDIO = {"audio/wav": "wav"}

Fields = dict[str, Any]


# ── chat ────────────────────────────────────────────────────────────────────────────────────────


async def chat(given: Given, outside: Outside) -> dict[str, m.Value]:
    """Raises as `Outside.exchange` does, and CallOutFailed for an answer that can't be used."""
    params, streamed = given.params, "text" in given.pieces
    body: Fields = {
        "model": params["model"],
        "messages": _messages(given),
        "temperature": params["temperature"],
        **({"max_tokens": params["max_tokens"]} if params["max_tokens"] else {}),
        **({"seed": given.seed} if params["seeded"] else {}),
        **({"response_format": {"type": "json_object"}} if params["json"] else {}),
        **({"tools": tools} if (tools := _tools(given)) else {}),
        **({"stream": True} if streamed else {}),
    }
    reader = _ChatReader(lambda text: given.send("text", m.Small(value=text)))
    found = await _posted(given, outside, "/chat/completions", body, reader.line if streamed else None)
    if not reader.began:
        reader.whole(found)
    elif not reader.over:
        raise CallOutFailed("the answer broke off before its end", retryable=True)
    return {"text": m.Small(value=reader.text), "finish": m.Small(value=reader.finish)}


class _ChatReader:
    """Reads an answer, whole or in events as it comes."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self.text, self.finish = "", ""
        self.began = False
        """It comes in events."""
        self.over = False
        self._send = send
        self._calls: dict[int, Fields] = {}

    def line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        self.began = True
        data = line[5:].strip()
        if data == b"[DONE]":
            self._end()
            return
        event = _object(data)
        if "error" in event:
            raise CallOutFailed("the server reports an error in the middle of its answer", retryable=True)
        choice = _first(event.get("choices"))
        self._take(_mapping(choice.get("delta")), choice)

    def whole(self, found: Incoming) -> None:
        choice = _first(_object(found.body).get("choices"))
        if not choice:
            raise CallOutFailed("the answer has no `choices`, as OpenAI's chat completions have")
        self._take(_mapping(choice.get("message")), choice)
        self._end()

    def _take(self, message: Fields, choice: Fields) -> None:
        if isinstance(text := message.get("content"), str) and text:
            self._tell(text)
        calls = message.get("tool_calls")
        for place, call in enumerate(cast(list[Any], calls) if isinstance(calls, list) else []):
            index, function = _mapping(call).get("index", place), _mapping(_mapping(call).get("function"))
            kept = self._calls.setdefault(index if isinstance(index, int) else place, {"name": "", "arguments": ""})
            for key in kept:
                kept[key] += str(function.get(key) or "")
        if isinstance(finish := choice.get("finish_reason"), str):
            self.finish = finish[: limits.NAME_CHARACTERS]

    def _end(self) -> None:
        """Writes the calls of tools as models write them, so that `agent.read_calls` reads both."""
        for call in self._calls.values():
            try:
                arguments: Any = json.loads(call["arguments"] or "{}")
            except (ValueError, RecursionError):
                arguments = call["arguments"]
            written = json.dumps({"name": call["name"], "arguments": arguments}, ensure_ascii=False)
            self._tell(
                f"\n<tool_call>\n{written}\n</tool_call>" if self.text else f"<tool_call>\n{written}\n</tool_call>"
            )
        self._calls.clear()
        self.over = True

    def _tell(self, text: str) -> None:
        self.text += text
        if len(self.text) > limits.TEXT_CHARACTERS:
            raise CallOutFailed(f"the answer has more than {limits.TEXT_CHARACTERS} characters; lower `max_tokens`")
        self._send(text)


def _messages(given: Given) -> list[Fields]:
    system, text, image = str(given.params["system"]), given.text("text"), given.data("image")
    found: list[Fields] = [{"role": "system", "content": system}] if system else []
    match given.inputs.get("messages"):
        case m.Conversation(turns=turns):
            found += [_turn(turn) for turn in turns]
        case None | m.Absent():
            pass
        case _:
            raise InvalidInput("the input `messages` is a conversation")
    parts: list[m.Part] = []
    if image is not None:
        parts.append(m.Part(modality="image", value=m.Blob(data=image)))
    if text is not None:
        parts.append(m.Part(modality="text", value=m.Small(value=text)))
    if parts:
        found.append(_turn(m.Turn(role="user", parts=tuple(parts))))
    if not found:
        raise InvalidInput("there is nothing to ask; connect `messages` or `text`")
    return found


def _turn(turn: m.Turn) -> Fields:
    contents = [_part(part) for part in turn.parts]
    plain = all(one["type"] == "text" for one in contents)
    content: Any = "".join(one["text"] for one in contents) if plain else contents
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in turn.tool_calls
    ]
    return {
        "role": turn.role,
        "content": content,
        **({"tool_calls": calls} if calls else {}),
        **({"tool_call_id": turn.tool_call_id} if turn.tool_call_id is not None else {}),
    }


def _part(part: m.Part) -> Fields:
    match part.value:
        case m.Small(value=str() as text):
            return {"type": "text", "text": text}
        case m.Blob(data=data) if (mime := mime_of(data)).startswith("image/"):
            url = f"data:{mime};base64,{pybase64.b64encode(data).decode()}"
            return {"type": "image_url", "image_url": {"url": url}}
        case m.Blob(data=data) if mime_of(data) in _AUDIO:
            audio = {"data": pybase64.b64encode(data).decode(), "format": _AUDIO[mime_of(data)]}
            return {"type": "input_audio", "input_audio": audio}
        case _:
            raise InvalidInput("a conversation for OpenAI's API has texts, pictures and WAV sound")


def _tools(given: Given) -> list[Any]:
    messages = given.inputs.get("messages")
    tools = messages.tools if isinstance(messages, m.Conversation) else ()
    return [json.loads(tool) for tool in tools]


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


async def images(given: Given, outside: Outside) -> dict[str, m.Value]:
    """Raises as `chat` does."""
    params = given.params
    body: Fields = {
        "model": params["model"],
        "prompt": given.text("prompt"),
        "n": 1,
        **({"size": params["size"]} if params["size"] else {}),
        **({"response_format": "b64_json"} if params["encoded"] == "asked" else {}),
    }
    found = await _posted(given, outside, "/images/generations", body)
    encoded = _first(_object(found.body).get("data")).get("b64_json")
    try:
        data = pybase64.b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    if not mime_of(data).startswith("image/"):
        raise CallOutFailed("the answer holds no PNG, JPEG or WebP in `b64_json`; see the parameter `encoded`")
    return {"image": m.Blob(data=data)}


# ── embeddings ──────────────────────────────────────────────────────────────────────────────────


async def embeddings(given: Given, outside: Outside) -> dict[str, m.Value]:
    """Raises as `chat` does."""
    texts = _texts(given)
    body: Fields = {
        "model": given.params["model"],
        "input": texts,
        "encoding_format": "float",
        **({"dimensions": given.params["dimensions"]} if given.params["dimensions"] else {}),
    }
    found = await _posted(given, outside, "/embeddings", body)
    data = _object(found.body).get("data")
    rows = [_mapping(row) for row in cast(list[Any], data)] if isinstance(data, list) else []
    order = [row.get("index", place) for place, row in enumerate(rows)]
    if sorted(map(str, order)) != sorted(map(str, range(len(texts)))):
        raise CallOutFailed(f"the answer doesn't hold one embedding for each of {len(texts)} texts")
    made = _matrix(
        [row.get("embedding") for _, row in sorted(zip(order, rows, strict=True), key=lambda pair: int(pair[0]))]
    )
    return {"embeddings": m.InlineTensor(dtype="float32", shape=(made.shape[0], made.shape[1]), data=made.tobytes())}


def _matrix(rows: Sequence[Any]) -> Any:
    """float32 `[n, d]`."""
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(rows, dtype=np.float32)
    except (ValueError, TypeError, OverflowError):
        made = np.zeros(0, np.float32)
    if made.ndim != 2 or not made.size or not np.isfinite(made).all():
        raise CallOutFailed("the answer's embeddings are not lists of finite numbers of one length")
    return np.ascontiguousarray(made)


def _texts(given: Given) -> list[str]:
    first, several = given.text("text"), given.inputs.get("texts")
    texts = [] if first is None else [first]
    match several:
        case None | m.Absent():
            pass
        case m.Many(items=items) if all(isinstance(one, m.Small) and isinstance(one.value, str) for one in items):
            texts += [str(one.value) for one in items if isinstance(one, m.Small)]
        case _:
            raise InvalidInput("the input `texts` is a list of texts")
    if not 0 < len(texts) <= MOST_TEXTS:
        raise InvalidInput(f"a call embeds 1 to {MOST_TEXTS} texts")
    return texts


# ── together ────────────────────────────────────────────────────────────────────────────────────


async def _posted(
    given: Given, outside: Outside, path: str, body: Mapping[str, Any], line: Callable[[bytes], None] | None = None
) -> Incoming:
    """The answer of the server, a success. `line` gets its lines as they come."""
    key = str(given.params["key"])
    if key and not SECRET.fullmatch(key):
        raise InvalidInput("the parameter `key` names a secret of the service: `secret:NAME`, or nothing")
    given.check_secrets("key")
    headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream" if line else "application/json")]
    url = parse_url(str(given.params["base_url"]).rstrip("/") + path)
    found = await outside.exchange(
        Outgoing(
            method="POST",
            url=url,
            headers=(*headers, *([("Authorization", f"Bearer {key}")] if key else [])),
            body=json.dumps(body, ensure_ascii=False).encode(errors="replace"),
            most_bytes=MOST_BYTES,
        ),
        line,
    )
    if found.status >= 400:
        raise _refused(url.origin, found)
    return found


def _refused(origin: str, found: Incoming) -> CallOutFailed:
    """The error of a refusal, with the server's code for it, but not its words, which may repeat what was sent."""
    try:
        error = _mapping(_object(found.body).get("error"))
    except CallOutFailed:
        error = {}
    kinds = [kind for kind in (error.get("code"), error.get("type")) if isinstance(kind, str) and _KIND.fullmatch(kind)]
    why = f", `{kinds[0]}`" if kinds else ""
    again = found.status >= 500 or found.status == 429
    return CallOutFailed(f"`{origin}` answered with the status {found.status}{why}", retryable=again)


def _object(data: bytes) -> Fields:
    try:
        read: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise CallOutFailed("the answer is not JSON, as OpenAI's API has it") from None
    return _mapping(read)


def _mapping(value: Any) -> Fields:
    return cast(Fields, value) if isinstance(value, dict) else {}


def _first(value: Any) -> Fields:
    items: list[Any] = cast(list[Any], value) if isinstance(value, list) else []
    return _mapping(items[0]) if items else {}
