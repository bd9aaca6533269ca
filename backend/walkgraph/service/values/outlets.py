"""Outlets take the bytes of media and tensors when a value is written as an object: into frames beside it, or into its
JSON or msgpack.

Large bytes are not put into the text. It is encoded with a mark in their place, split there, and sent with the bytes
between its parts: base64 is encoded as it is sent.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import pybase64

from walkgraph.service.http.pieces import Base64, Bytes, Piece

LARGE_BYTES = 64 * 1024
_MARK_BYTES = 16


class Outlet(Protocol):
    @property
    def numbers(self) -> bool:
        """True if small tensors are written as lists of numbers."""
        ...

    def put(self, key: str, data: Bytes) -> dict[str, Any]:
        """Take bytes; returns the fields of the object that stand for them. `key`: where they go inside the object."""
        ...


class InText:
    """Base64 inside the object."""

    numbers = True

    def put(self, key: str, data: Bytes) -> dict[str, Any]:
        return {key: pybase64.b64encode(data).decode()}


IN_TEXT = InText()


class Frames:
    """Frames beside the object, which holds their numbers."""

    numbers = False

    def __init__(self, sent: Sequence[Bytes] = ()) -> None:
        """`sent`: the first frames, which were sent before the object. Bytes that are one of them are not put again."""
        self.found = [*sent]
        self._sent: dict[int, list[int]] = {}
        """The numbers of frames sent before that no value has yet, by the ids of their bytes."""
        for number in reversed(range(len(self.found))):
            self._sent.setdefault(id(self.found[number]), []).append(number)

    def put(self, key: str, data: Bytes) -> dict[str, Any]:
        if numbers := self._sent.get(id(data)):
            return {"frame": numbers.pop()}
        self.found.append(data)
        return {"frame": len(self.found) - 1}


class Codec(NamedTuple):
    encode: Callable[[Any], bytes]
    """Encodes an object, bytes too."""
    mark: Callable[[str], bytes]
    """A text of 32 ASCII characters, as it is encoded."""
    written: Callable[[Bytes], tuple[Piece, ...]]
    """Bytes, as they are encoded."""
    numbers: bool


def _json_mark(text: str) -> bytes:
    return f'"{text}"'.encode()


def _json_bytes(data: Bytes) -> tuple[Piece, ...]:
    return b'"', Base64(data), b'"'


def _msgpack_mark(text: str) -> bytes:
    return b"\xd9" + bytes([len(text)]) + text.encode()


def _msgpack_bytes(data: Bytes) -> tuple[Piece, ...]:
    return b"\xc6" + len(data).to_bytes(4, "big"), data


JSON = Codec(msgspec.json.encode, _json_mark, _json_bytes, numbers=True)
MSGPACK = Codec(msgspec.msgpack.encode, _msgpack_mark, _msgpack_bytes, numbers=False)


class Spliced:
    """Bytes inside the encoded object, large ones without a copy."""

    def __init__(self, codec: Codec) -> None:
        self.numbers = codec.numbers
        self._codec = codec
        self._mark = ""
        self._large: list[Bytes] = []

    def put(self, key: str, data: Bytes) -> dict[str, Any]:
        if len(data) < LARGE_BYTES:
            return {key: data}
        # No content has this text, because nobody knows it before.
        self._mark = self._mark or secrets.token_hex(_MARK_BYTES)
        self._large.append(data)
        return {key: self._mark}

    def pieces(self, told: Any) -> Iterator[Piece]:
        """The encoded object. `told` has been written with this outlet."""
        encoded = self._codec.encode(told)
        if not self._large:
            yield encoded
            return
        first, *others = encoded.split(self._codec.mark(self._mark))
        yield first
        for data, part in zip(self._large, others, strict=True):
            yield from self._codec.written(data)
            yield part
