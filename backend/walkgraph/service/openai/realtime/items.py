"""A conversation over `/v1/realtime`: its items in order, within limits, and the buffer of uncommitted audio."""

import binascii
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pybase64

from walkgraph.media_types import mime_of
from walkgraph.service.http import limits
from walkgraph.service.openai.realtime.events import RATE, Content, ItemAsked, wrong
from walkgraph.service.values import sound, values
from walkgraph.wire import messages as m

Role = Literal["user", "assistant", "system"]
Status = Literal["in_progress", "completed", "incomplete"]
ROOT = "root"
"""An item that is inserted after this becomes the first."""
_KINDS = {"input_text": "text", "input_audio": "audio", "input_image": "image", "output_text": "text", "text": "text"}
_ALLOWED = {
    "user": ("input_text", "input_audio", "input_image"),
    "system": ("input_text",),
    "assistant": ("output_text", "text"),
}


@dataclass
class Part:
    kind: str
    """`text`, `audio` or `image`."""
    text: str = ""
    """The text; for audio, its transcript if that is known."""
    data: bytes | bytearray = b""
    """PCM, or an image's file. It grows while an answer is generated."""

    @property
    def bytes(self) -> int:
        return len(self.text) + len(self.data)


@dataclass
class Item:
    id: str
    role: Role
    status: Status = "completed"
    parts: list[Part] = field(default_factory=list[Part])

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts)

    def shown(self, *, whole: bool = False) -> dict[str, Any]:
        """The item as events show it. `whole`: with its audio and images."""
        return {
            "id": self.id,
            "object": "realtime.item",
            "type": "message",
            "status": self.status,
            "role": self.role,
            "content": [_shown(part, self.role, whole=whole) for part in self.parts],
        }


def _shown(part: Part, role: Role, *, whole: bool) -> dict[str, Any]:
    side = "output" if role == "assistant" else "input"
    found: dict[str, Any] = {"type": f"{side}_{part.kind}"}
    match part.kind:
        case "text":
            return {**found, "text": part.text}
        case "audio":
            audio = {"audio": pybase64.b64encode(part.data).decode()} if whole else {}
            return {**found, **audio, "transcript": part.text or None}
        case _:
            mime = mime_of(bytes(part.data[:16]))
            url = f"data:{mime};base64,{pybase64.b64encode(part.data).decode()}"
            return {**found, **({"image_url": url} if whole else {})}


def read_item(asked: ItemAsked, taken: frozenset[str], pointer: str) -> Item:
    """A client's item for a model that takes these modalities. Raises InvalidInput, with pointers below `pointer`."""
    parts = [
        _read_part(content, asked.role, taken, f"{pointer}/content/{i}") for i, content in enumerate(asked.content)
    ]
    return Item(asked.id or new_id("item"), asked.role, "completed", parts)


def _read_part(content: Content, role: Role, taken: frozenset[str], at: str) -> Part:
    if content.type not in _ALLOWED[role]:
        known = ", ".join(f"`{kind}`" for kind in _ALLOWED[role])
        raise wrong(f"{at}/type", f"an item of role `{role}` has content of type {known}")
    kind = _KINDS[content.type]
    if role == "user" and kind not in taken:
        able = ", ".join(f"`input_{kind}`" for kind in ("text", "audio", "image") if kind in taken)
        raise wrong(f"{at}/type", f"this model takes no {kind}; it takes {able}")
    key = {"text": "text", "audio": "audio", "image": "image_url"}[kind]
    given: str | None = getattr(content, key)
    if given is None:
        raise wrong(f"{at}/{key}", "this field is required", "missing")
    match kind:
        case "text":
            return Part("text", given)
        case "audio":
            return Part("audio", content.transcript or "", pcm_of(given, f"{at}/audio"))
        case _:
            read = values.read("image", given, f"{at}/image_url")
            return Part("image", "", read.data if isinstance(read, m.Blob) else b"")


def pcm_of(text: str, pointer: str) -> bytes:
    """Decodes base64. Raises Unprocessable."""
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise wrong(pointer, "this is not base64") from None


def wav_of(pcm: bytes | bytearray) -> bytes:
    """The audio as WAV for a model, without an incomplete sample at the end."""
    samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.int16, copy=False)
    return sound.written(sound.Sound(RATE, samples.reshape(-1, 1)))


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


class Conversation:
    """Items in order."""

    def __init__(self) -> None:
        self.id = new_id("conv")
        self._items: list[Item] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def get(self, id_: str, code: str, pointer: str = "/item_id") -> Item:
        """The item of this id. Raises Unprocessable with this code."""
        found = next((item for item in self._items if item.id == id_), None)
        if found is None:
            raise wrong(pointer, "this conversation has no item of that id", code)
        return found

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Inserts an item after another, `root`, or by default the last one, and returns the id of the item before it.
        Raises Unprocessable."""
        if any(known.id == item.id for known in self._items):
            raise wrong("/item/id", "this conversation has an item of that id; leave it out, or send another one")
        self.check_room(item.bytes, 1)
        return self.insert(item, after)

    def insert(self, item: Item, after: str | None = None) -> str | None:
        """As `add`, without limits."""
        at = len(self._items)
        if after == ROOT:
            at = 0
        elif after is not None:
            at = self._items.index(self.get(after, "bad_value", "/previous_item_id")) + 1
        self._items.insert(at, item)
        self._bytes += item.bytes
        return self._items[at - 1].id if at else None

    def check_room(self, count: int, items: int = 0) -> None:
        """Raises Unprocessable if so many more bytes or items exceed the limits."""
        if len(self._items) + items > limits.REALTIME_ITEMS:
            raise wrong("", f"a conversation may have {limits.REALTIME_ITEMS} items; delete some", "too_long")
        if self._bytes + count > limits.REALTIME_BYTES:
            raise wrong("", f"a conversation may have {limits.REALTIME_BYTES} bytes; delete items", "too_long")

    def grown(self, part: Part, text: str, data: bytes) -> None:
        """Appends to a part of an item in this conversation. Audio over the limit is not kept."""
        part.text += text
        self._bytes += len(text)
        if isinstance(part.data, bytearray) and self._bytes + len(data) <= limits.REALTIME_BYTES:
            part.data += data
            self._bytes += len(data)

    def delete(self, id_: str) -> None:
        found = self.get(id_, "item_delete_invalid_item_id")
        if found.status == "in_progress":
            raise wrong("/item_id", "this item is a response under way; cancel the response first")
        self._items.remove(found)
        self._bytes -= found.bytes

    def turn(self) -> list[Item]:
        """The items since the last answer."""
        answers = [i for i, item in enumerate(self._items) if item.role == "assistant"]
        return self._items[answers[-1] + 1 :] if answers else list(self._items)


class Buffer:
    """Audio that a client has appended and not committed yet."""

    def __init__(self) -> None:
        self._pcm = bytearray()

    def append(self, pcm: bytes) -> None:
        """Adds audio. Raises Unprocessable if it is too much."""
        if len(self._pcm) + len(pcm) > limits.REALTIME_BUFFER_BYTES:
            limit = limits.REALTIME_BUFFER_BYTES
            raise wrong("/audio", f"{limit} bytes of audio may wait; commit or clear the buffer", "too_long")
        self._pcm += pcm

    def clear(self) -> None:
        self._pcm.clear()

    def take(self) -> bytes:
        """Takes all audio out of the buffer. Raises Unprocessable if it is empty."""
        if len(self._pcm) < 2:
            message = "there is no audio in the buffer; send `input_audio_buffer.append` first"
            raise wrong("", message, "input_audio_buffer_commit_empty")
        found = bytes(self._pcm)
        self._pcm.clear()
        return found


def spoken(items: Sequence[Item], roles: tuple[Role, ...] = ("user",)) -> list[Part]:
    """The parts of items of these roles, in order."""
    return [part for item in items if item.role in roles for part in item.parts]
