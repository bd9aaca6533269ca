"""Beginnings of what runs read, and which ranks have read them: these may still have their pages.

The conductor knows no tokens, so a beginning is told by the bytes of a run's inputs, up to the end of a value or every
`STRIDE` bytes inside a text. It is a hint: a rank may have evicted its pages meanwhile.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from walkgraph.ids import Rank
from walkgraph.wire import messages as m

STRIDE = 256
"""Bytes of a text between two beginnings."""
LOOKED_AT = 64 * 1024
"""Bytes at each end of media by which they are told."""
MEDIA = 4096
"""The most bytes of text that a piece of media counts as."""
REMEMBERED = 2**15
"""The most beginnings remembered for a rank."""


class Beginning(NamedTuple):
    digest: bytes
    size: int
    """Bytes up to there."""


class Beginnings:
    """The beginnings that each rank has read last."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most = most
        self._read: dict[Rank, OrderedDict[bytes, None]] = {}

    def known(self, rank: Rank, beginnings: Iterable[Beginning]) -> int:
        """Bytes of the longest beginning that a rank has read."""
        read, longest = self._read.get(rank), 0
        for beginning in beginnings:
            if read is None or beginning.digest not in read:
                break
            longest = beginning.size
        return longest

    def count(self, rank: Rank) -> int:
        return len(self._read.get(rank, ()))

    def remember(self, rank: Rank, beginnings: Iterable[Beginning]) -> None:
        read = self._read.setdefault(rank, OrderedDict())
        for beginning in beginnings:
            read[beginning.digest] = None
            read.move_to_end(beginning.digest)
        while len(read) > self._most:
            read.popitem(last=False)

    def forget(self, rank: Rank) -> None:
        """Forgets a rank that was lost, and its pages with it."""
        self._read.pop(rank, None)


def beginnings_of(submit: m.Submit) -> tuple[Beginning, ...]:
    """The beginnings of a run's inputs, the shortest first. Runs of other tasks or owners share none."""
    digest, before, found = blake2b(f"{submit.task}\0{submit.salt}".encode(), digest_size=12), 0, list[Beginning]()
    given = [(name, value) for name, values in sorted(submit.inputs.items()) for value in values]
    given += [(part.modality, part.value) for part in submit.parts]
    for head, data, counts in (piece for name, value in given for piece in _pieces(name, value)):
        digest.update(f"\0{head}\0".encode())
        for at in range(0, len(data) or 1, STRIDE):
            digest.update(data[at : at + STRIDE])
            size = at + STRIDE if at + STRIDE < len(data) else counts
            found.append(Beginning(digest.digest(), before + size))
        before += counts
    return tuple(found)


def _pieces(name: str, value: m.Value) -> Iterator[tuple[str, bytes, int]]:
    """(name, what tells it apart, bytes that it counts as) for each part of a value."""
    match value:
        case m.Small():
            text = str(value.value).encode(errors="surrogatepass")
            yield name, text, len(text)
        case m.Blob() | m.InlineTensor():
            yield (
                name,
                told(value.data[:LOOKED_AT], value.data[-LOOKED_AT:], len(value.data)),
                min(len(value.data), MEDIA),
            )
        case m.Posted():
            yield name, value.ends, min(value.nbytes, MEDIA)
        case m.Many():
            for item in value.items:
                yield from _pieces(name, item)
        case m.Named():
            for key, item in sorted(value.items.items()):
                yield from _pieces(key, item)
        case m.Conversation():
            tools = "\0".join(value.tools).encode(errors="surrogatepass")
            yield f"{name} {value.call}", tools, len(tools)
            for turn in value.turns:
                for part in turn.parts:
                    yield from _pieces(f"{turn.role} {part.modality}", part.value)
                for call in turn.tool_calls:
                    yield from _pieces(f"{turn.role} {call.name}", m.Small(value=call.arguments))
        case _:
            yield name, repr(value).encode(), 0


def told(first: bytes, last: bytes, nbytes: int) -> bytes:
    """A digest of media, by their length and the bytes at their ends, `LOOKED_AT` of each where there are so many."""
    return blake2b(first + last, digest_size=16, salt=nbytes.to_bytes(8, "big")).digest()
