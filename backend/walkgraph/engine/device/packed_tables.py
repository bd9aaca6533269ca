"""Tables of numbers in one piece of device memory, so that one indexed copy writes into all of them.

    | table 0 | .. | table 1 | .. | spare word |

Numbers are packed on the host and sent in one copy, whatever their types.

Shape letters: W words to be written, one more if that is odd; n rows that they are for.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.device.cuda_streams import sent

_WORD = 4
"""Bytes."""
_ALIGNED = 64
"""Words that a table's place is a multiple of, because kernels load several at once."""
_CODES = {torch.int32: "i", torch.int64: "q", torch.float32: "f"}
"""Codes of the types in Python's `array`. It makes infinities of numbers that float32 has no place for."""

Shape = tuple[int, ...]


class PackedNumbers:
    """Numbers for places in the tables, on the host."""

    __slots__ = ("at", "values")

    def __init__(self) -> None:
        self.at = array("q")
        """The words that they are written to."""
        self.values = bytearray()


class SentNumbers(NamedTuple):
    """Numbers on the device, with the words that they are written to."""

    rows: Tensor
    """int64 `[n]`"""
    at: Tensor
    """int64 `[W]`"""
    values: Tensor
    """int32 `[W]`"""


class _PackedTable(NamedTuple):
    tensor: Tensor
    start: int
    """Its first word."""
    words: int
    """Words of a number."""
    row: int
    """Numbers of a row along its last axis."""
    code: str


class PackedTables:
    def __init__(self, tables: Mapping[str, tuple[Shape, torch.dtype]], device: torch.device) -> None:
        """`tables`: shape of each, and the type of its numbers."""
        starts = [0]
        for shape, dtype in tables.values():
            words = torch.Size(shape).numel() * dtype.itemsize // _WORD
            starts.append(starts[-1] + -(-words // _ALIGNED) * _ALIGNED)
        self._spare = starts[-1]
        """A word that nobody reads: what pads a copy is written there."""
        self._memory = torch.zeros(self._spare + 1, dtype=torch.int32, device=device)
        self._tables: dict[str, _PackedTable] = {}
        for start, (name, (shape, dtype)) in zip(starts, tables.items(), strict=False):
            size = dtype.itemsize // _WORD
            tensor = self._memory[start : start + torch.Size(shape).numel() * size].view(dtype).view(shape)
            self._tables[name] = _PackedTable(tensor, start, size, shape[-1], _CODES[dtype])

    def __getitem__(self, name: str) -> Tensor:
        return self._tables[name].tensor

    def put(self, packed: PackedNumbers, name: str, row: int, numbers: Sequence[float], column: int = 0) -> None:
        """Add numbers for a row of a table along its last axis, from this column on. Raises OverflowError if one is too
        large for the type."""
        _, start, size, length, code = self._tables[name]
        if column + len(numbers) > length:
            raise IndexError(f"{len(numbers)} numbers don't fit a row of {length} of `{name}` from {column} on")
        first = start + (row * length + column) * size
        packed.at.extend(range(first, first + len(numbers) * size))
        packed.values += array(code, numbers).tobytes()

    def send(self, given: Sequence[PackedNumbers], rows: Sequence[int]) -> SentNumbers:
        """Send numbers to the device, in stream order. `rows`: indices that come with the same copy."""
        count = sum([len(one.at) for one in given])
        odd = count % 2
        at, values = [array("q", rows), *[one.at for one in given]], [one.values for one in given]
        host = bytearray().join([*at, array("q", [self._spare] * odd), *values, bytes(_WORD * odd)])
        sizes = [len(rows), count + odd, (count + odd) // 2]
        parts = sent(torch.frombuffer(host, dtype=torch.int64), self._memory.device).split(sizes)
        return SentNumbers(parts[0], parts[1], parts[2].view(torch.int32))

    def write(self, numbers: SentNumbers) -> None:
        """Write numbers to their places, in stream order. No place may occur twice."""
        self._memory.index_copy_(0, numbers.at, numbers.values)
