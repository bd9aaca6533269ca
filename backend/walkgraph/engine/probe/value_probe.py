"""Probes values as they pass: statistics, a digest, numbers to compare, a preview.

A value on a GPU is reduced there, on a stream beside the steps, and comes back through pinned memory: `take` never
waits, and `ready` returns what has come back. On a CPU it is done at once, at a bounded cost: statistics of more than
SAMPLED numbers come from an even sample, and say so. Digests always cover all bytes.
"""

import hashlib
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from walkgraph.engine.device.cuda_streams import SideStream
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.kv.paged_state import CacheSummary
from walkgraph.engine.probe import previews
from walkgraph.graph.conversation import Conversation
from walkgraph.telemetry.events import AnyPreview, Statistics

_log = logging.getLogger(__name__)

SAMPLED = {"cuda": 1 << 22, "cpu": 1 << 18}
"""The most numbers that statistics are computed from. Fewer on a CPU, where the computation waits: 5 ms."""
BINS = 32
PICKED = 256
_LANES = 64
"""Counters per bin: increments of the same counter wait for each other."""
_WORDS = 1 << 22
"""Words of 8 bytes digested at a time."""
_MASK = (1 << 64) - 1
_PLACE, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Odd numbers whose products spread bits well."""


class ProbeRequest(NamedTuple):
    """The figures wanted of a value."""

    histogram: bool = False
    preview: bool = False
    record: bool = False
    """True for a digest and picked numbers."""


class ProbedValue(NamedTuple):
    token: Any
    """Given by the caller, and returned unchanged."""
    dtype: str
    """A tensor's dtype; otherwise `text`, `bytes`, `number`, `list`, `cache` or `absent`."""
    shape: tuple[int, ...]
    """For a cache: sequences, tokens of the longest, pages."""
    statistics: Statistics | None = None
    preview: AnyPreview | None = None
    digest: str = ""
    picked: tuple[float, ...] = ()


class _PendingProbe(NamedTuple):
    mark: Mark | None
    made: Callable[[], ProbedValue]


class ValueProbe:
    def __init__(self, sides: dict[torch.device, SideStream] | None = None) -> None:
        """`sides`: the side streams of another probe, to share."""
        self._sides: dict[torch.device, SideStream] = {} if sides is None else sides
        self._looks: deque[_PendingProbe] = deque()

    @property
    def pending(self) -> bool:
        """True if results are still to come."""
        return bool(self._looks)

    def take(self, token: Any, value: Any, modality: str, wants: ProbeRequest) -> None:
        """Probe a value as it passes between calls; None is an absent one. If a tensor can't be probed, for lack of
        memory or because of its dtype, only its kind and shape are returned: being watched must not make a run
        fail."""
        with torch.inference_mode():
            if isinstance(value, Tensor):
                try:
                    self._looks.append(self._tensor(token, value, modality, wants))
                except Exception as raised:  # noqa: BLE001 (being watched must not make a run fail)
                    looked = ProbedValue(token, *_kind(value))
                    _log.warning("a value of %s %s could not be probed: %s", *_kind(value), raised)
                    self._looks.append(_PendingProbe(None, lambda: looked))
            elif isinstance(value, Mapping | list | tuple) and not isinstance(value, CacheSummary):
                self._looks.append(self._list(token, value, wants))
            else:
                looked = _plain(token, value, wants)
                self._looks.append(_PendingProbe(None, lambda: looked))

    def ready(self) -> list[ProbedValue]:
        """Return the results that have come, in the order of `take`."""
        found: list[ProbedValue] = []
        while self._looks and ((mark := self._looks[0].mark) is None or mark.query()):
            found.append(self._looks.popleft().made())
        return found

    def _tensor(self, token: Any, value: Tensor, modality: str, wants: ProbeRequest) -> _PendingProbe:
        side = self._side(value.device)
        with side.opened((value,)):
            numbers = side.to_host(_numbers(value, wants))
            reduced = previews.reduced(value, modality) if wants.preview else None
            small = [] if reduced is None else [side.to_host(one) for one in reduced.tensors]
            mark = side.mark()
        dtype, shape = _kind(value)
        count, every, nbytes = value.numel(), _every(value), value.nbytes

        def made() -> ProbedValue:
            statistics, digest, picked = _read(numbers, count, every, nbytes, wants)
            preview = None if reduced is None else reduced.shown(small)
            return ProbedValue(token, dtype, shape, statistics, preview, digest, picked)

        return _PendingProbe(mark, made)

    def _list(self, token: Any, value: Mapping[str, Any] | Sequence[Any], wants: ProbeRequest) -> _PendingProbe:
        items = [value[name] for name in sorted(value)] if isinstance(value, Mapping) else list(value)
        shown = previews.plain(items) if wants.preview else None
        if not wants.record:
            looked = ProbedValue(token, "list", (len(items),), preview=shown)
            return _PendingProbe(None, lambda: looked)
        inner = ValueProbe(self._sides)
        for item in items:
            inner.take(None, item, "", ProbeRequest(record=True))
        looks = list(inner._looks)
        marks = [look.mark for look in looks if look.mark is not None]

        def made() -> ProbedValue:
            text = " ".join(look.made().digest for look in looks)
            return ProbedValue(token, "list", (len(items),), preview=shown, digest=_of_bytes(text.encode()))

        return _PendingProbe(_AllMarks(marks) if marks else None, made)

    def _side(self, device: torch.device) -> SideStream:
        if device not in self._sides:
            self._sides[device] = SideStream(device)
        return self._sides[device]


class _AllMarks:
    """Several marks as one."""

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._marks = marks

    def query(self) -> bool:
        return all(mark.query() for mark in self._marks)

    def wait(self) -> None:
        for mark in self._marks:
            mark.wait()

    def synchronize(self) -> None:
        for mark in self._marks:
            mark.synchronize()


def _kind(value: Tensor) -> tuple[str, tuple[int, ...]]:
    return str(value.dtype).removeprefix("torch."), tuple(value.shape)


def _plain(token: Any, value: Any, wants: ProbeRequest) -> ProbedValue:
    shown = previews.plain(value) if wants.preview else None
    match value:
        case None:
            return ProbedValue(token, "absent", ())
        case CacheSummary():
            return ProbedValue(token, "cache", tuple(value))
        case str():
            raw, dtype, shape = value.encode(), "text", (len(value),)
        case bytes():
            raw, dtype, shape = value, "bytes", (len(value),)
        case Conversation():
            raw, dtype, shape = repr(value).encode(), "messages", (len(value.turns),)
        case _:
            raw, dtype, shape = repr(value).encode(), "number", ()
    numbers = isinstance(value, bool | int | float)
    picked = (float(value),) if wants.record and numbers else ()
    return ProbedValue(token, dtype, shape, None, shown, _of_bytes(raw) if wants.record else "", picked)


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────


def _numbers(value: Tensor, wants: ProbeRequest) -> Tensor:
    """All figures wanted of a tensor as words of 8 bytes `[n]`: doubles, and the digest, an integer, last."""
    flat = value.detach().reshape(-1)
    parts = [measured(flat, histogram=wants.histogram).view(torch.int64)]
    if wants.record:
        parts += [picked(flat).view(torch.int64), summed(flat).view(1)]
    return torch.cat(parts)


def _read(
    numbers: Tensor, count: int, every: int, nbytes: int, wants: ProbeRequest
) -> tuple[Statistics | None, str, tuple[float, ...]]:
    found: list[float] = numbers.view(torch.float64).tolist()
    nan, infinite, low, high, mean, std = (_bounded(number) for number in found[:6])
    bins = BINS if wants.histogram else 0
    statistics = Statistics(
        count=count,
        nan=int(nan),
        infinite=int(infinite),
        low=low,
        high=high,
        mean=mean,
        std=std,
        histogram=tuple(int(number) for number in found[6 : 6 + bins]),
        every=every,
    )
    if not wants.record:
        return statistics, "", ()
    return statistics, finished(int(numbers[-1]), nbytes), tuple(found[6 + bins : -1])


def measured(flat: Tensor, *, histogram: bool) -> Tensor:
    """Float64 `[6]` or `[6 + BINS]` on the tensor's device: counts of NaN and infinity, lowest, highest, mean,
    standard deviation, and the count in each of BINS equal bins from lowest to highest. Zeros if no number is
    finite."""
    numbers = flat[:: _every(flat)].to(torch.float64)
    if not numbers.numel():
        return numbers.new_zeros(6 + BINS * histogram)
    finite = numbers.isfinite()
    count = finite.sum()
    some, least = count > 0, count.clamp(min=1)
    low = torch.where(finite, numbers, math.inf).amin().where(some, 0.0)
    high = torch.where(finite, numbers, -math.inf).amax().where(some, 0.0)
    mean = torch.where(finite, numbers, 0.0).sum() / least
    std = (torch.where(finite, numbers - mean, 0.0).square().sum() / least).sqrt()
    found = torch.stack([numbers.isnan().sum().double(), numbers.isinf().sum().double(), low, high, mean, std])
    if not histogram:
        return found
    place = ((numbers - low) / (high - low) * BINS).nan_to_num(0.0).clamp(0, BINS - 1).long()
    place = torch.where(finite, place, BINS) * _LANES
    place += torch.arange(len(numbers), device=flat.device) % _LANES
    counts = torch.zeros((BINS + 1) * _LANES, dtype=torch.int64, device=flat.device)
    counts.scatter_add_(0, place, torch.ones_like(place))
    return torch.cat([found, counts.view(BINS + 1, _LANES).sum(1)[:BINS].double()])


def picked(flat: Tensor) -> Tensor:
    """Float64 `[PICKED]`: numbers at even distances; all of them if there are fewer."""
    count = flat.numel()
    if count <= PICKED:
        return flat.to(torch.float64)
    places = torch.arange(PICKED, device=flat.device) * count // PICKED
    return flat.index_select(0, places).to(torch.float64)


def summed(flat: Tensor) -> Tensor:
    """Int64 `[]`: the sum, modulo 2^64, of a hash of each 8-byte word and its place. Integers only, so that neither
    the order of summation nor the device makes a difference."""
    total = torch.zeros((), dtype=torch.int64, device=flat.device)
    octets = flat.contiguous().view(torch.uint8)
    whole = octets.numel() // 8
    words = octets[: whole * 8]
    if words.data_ptr() % 8 or words.storage_offset() % 8:
        words = words.clone()
    words = words.view(torch.int64)
    for start in range(0, whole, _WORDS):
        total += _mixed(words[start : start + _WORDS], start).sum()
    if whole * 8 < octets.numel():
        rest = torch.zeros(8, dtype=torch.uint8, device=flat.device)
        rest[: octets.numel() - whole * 8] = octets[whole * 8 :]
        total += _mixed(rest.view(torch.int64), whole).sum()
    return total


def _mixed(words: Tensor, start: int) -> Tensor:
    places = torch.arange(start + 1, start + 1 + len(words), device=words.device)
    found = words + places * _signed(_PLACE)
    found = (found ^ (found >> 30)) * _signed(_FIRST)
    found = (found ^ (found >> 27)) * _signed(_SECOND)
    return found ^ (found >> 31)


def finished(total: int, nbytes: int) -> str:
    """The digest, 16 hex digits, from the sum of `summed`."""
    word = (total + nbytes * _PLACE) & _MASK
    word = ((word ^ (word >> 30)) * _FIRST) & _MASK
    return f"{word ^ (word >> 31):016x}"


def _of_bytes(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _every(value: Tensor) -> int:
    return max(1, -(-value.numel() // SAMPLED[value.device.type]))


def _bounded(number: float) -> float:
    """Keep a figure within what JSON can hold: sums of very large numbers overflow."""
    return max(-1.7e308, min(1.7e308, 0.0 if math.isnan(number) else number))
