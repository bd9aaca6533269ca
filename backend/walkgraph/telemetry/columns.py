"""Traces and recordings as bytes for storage: by columns, each reduced by what can be predicted of it, then compressed.

    trace      MAGIC, then zlib of msgpack [the trace without its tables, blocks, hops, counters, shards]; traces of
               earlier versions end before `shards`
    table      [rows, column, ...]; a column is bytes: integers as below, floats as their bytes, ragged columns as
               their lengths and, for each length, the values of each place
    integers   width, then the bytes of all numbers by significance: zigzag, so that small ones of both signs are small

Blocks are grouped by lane, in which numbers go up by one and pages go down by one. Times are stored as differences of
consecutive times of a block; values that can be predicted from these (`busy`, `queued`), as the difference to the
prediction.
"""

import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from walkgraph.telemetry.events import Sample
from walkgraph.telemetry.trace import Blocks, Counters, Hops, Shards, Trace

MAGIC = b"walkgraph trace 1\n"
RECORDING = b"walkgraph recording 1\n"
LEVEL = 6
"""Compression level of zlib."""

Ints = NDArray[np.int64]
Table = TypeVar("Table", Blocks, Hops, Counters, Shards)

_RAGGED = frozenset(("iteration", "mates", "key"))
_FLOATS = frozenset(("busy",))
"""Float columns of counters; the columns of that name in blocks hold microseconds."""
_IN_ORDER = ("lane", "started")
"""Columns of blocks stored in the trace's order; the others are stored by lane."""


class Unreadable(ValueError):
    """The bytes are not a trace, or one of another version."""


def encode(trace: Trace) -> bytes:
    head = msgspec.structs.replace(trace, blocks=Blocks(), hops=Hops(), counters=Counters(), shards=Shards())
    tables = (
        _encode_blocks(trace.blocks),
        _encode_hops(trace.hops),
        _encode_table(trace.counters),
        _encode_shards(trace.shards),
    )
    return MAGIC + zlib.compress(msgspec.msgpack.encode((head, *tables)), LEVEL)


def decode(data: bytes) -> Trace:
    """Read a trace. Raises Unreadable."""
    body = _body(data, MAGIC)
    try:
        head, *rest = msgspec.msgpack.decode(body, type=list[msgspec.Raw])
        blocks, hops, counters, *shards = [msgspec.msgpack.decode(table, type=list[Any]) for table in rest]
        return msgspec.structs.replace(
            msgspec.msgpack.decode(head, type=Trace),
            blocks=_decode_blocks(blocks),
            hops=_decode_hops(hops),
            counters=_decode_table(Counters, counters),
            shards=_decode_shards(shards[0]) if shards else Shards(),
        )
    except (msgspec.MsgspecError, ValueError, IndexError, TypeError) as error:
        raise Unreadable(f"these bytes are not a trace: {error}") from error


def encode_recording(samples: Iterable[tuple[Sample, Sequence[float]]]) -> bytes:
    """Write samples, each with its separate picked numbers in place of its own."""
    stored: list[Sample] = []
    lengths: list[int] = []
    numbers = array("d")
    for sample, picked in samples:
        stored.append(sample if not sample.picked else msgspec.structs.replace(sample, picked=()))
        lengths.append(len(picked))
        numbers.extend(picked)
    floats = _pack_floats(np.asarray(numbers, dtype=np.float64))
    return RECORDING + zlib.compress(msgspec.msgpack.encode((stored, lengths, floats)), LEVEL)


def decode_recording(data: bytes) -> tuple[Sample, ...]:
    """Read a recording. Raises Unreadable."""
    body = _body(data, RECORDING)
    try:
        stored, lengths, floats = msgspec.msgpack.decode(body, type=tuple[list[Sample], list[int], bytes])
        numbers: list[float] = _unpack_floats(floats, sum(lengths)).tolist()
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(f"these bytes are not a recording: {error}") from error
    found: list[Sample] = []
    at = 0
    for sample, length in zip(stored, lengths, strict=True):
        found.append(msgspec.structs.replace(sample, picked=tuple(numbers[at : at + length])))
        at += length
    return tuple(found)


def _body(data: bytes, magic: bytes) -> bytes:
    if not data.startswith(magic):
        raise Unreadable("these bytes were not written by this version")
    try:
        return zlib.decompress(data[len(magic) :])
    except zlib.error as error:
        raise Unreadable(f"these bytes are damaged: {error}") from error


# ── tables ──────────────────────────────────────────────────────────────────────────────────────


def _encode_blocks(blocks: Blocks) -> list[Any]:
    lane = _ints(blocks.lane)
    order = np.argsort(lane, kind="stable")
    by: dict[str, Ints] = {
        name: _ints(getattr(blocks, name)) for name in Blocks.__struct_fields__ if name not in _RAGGED
    }
    stored = {name: column if name in _IN_ORDER else column[order] for name, column in by.items()}
    started = by["started"][order]
    stored["started"] = _steps(by["started"])
    for name in ("number", "pages_free", "step"):
        stored[name] = _steps(stored[name])
    ready, taken, launched, finished = (stored[name] for name in ("ready", "taken", "launched", "finished"))
    stored["busy"] = stored["busy"] - (finished - started)
    stored["queued"] = stored["queued"] - (started - ready)
    stored["ready"], stored["taken"] = started - ready, taken - ready
    stored["launched"], stored["finished"] = launched - taken, finished - started
    columns: list[Any] = [
        _pack_ragged([getattr(blocks, name)[row] for row in order.tolist()]) if name in _RAGGED else _pack(stored[name])
        for name in Blocks.__struct_fields__
    ]
    return [len(lane), *columns]


def _decode_blocks(packed: list[Any]) -> Blocks:
    rows, columns = packed[0], dict(zip(Blocks.__struct_fields__, packed[1:], strict=True))
    stored = {name: _unpack(data, rows) for name, data in columns.items() if name not in _RAGGED}
    order = np.argsort(stored["lane"], kind="stable")
    back: list[int] = np.argsort(order, kind="stable").tolist()
    in_order = np.cumsum(stored["started"])
    started = in_order[order]
    for name in ("number", "pages_free", "step"):
        stored[name] = np.cumsum(stored[name])
    stored["finished"] = stored["finished"] + started
    stored["ready"] = started - stored["ready"]
    stored["taken"] = stored["taken"] + stored["ready"]
    stored["launched"] = stored["launched"] + stored["taken"]
    stored["busy"] = stored["busy"] + (stored["finished"] - started)
    stored["queued"] = stored["queued"] + (started - stored["ready"])
    found: dict[str, Any] = {}
    for name, data in columns.items():
        if name in _RAGGED:
            values = _unpack_ragged(data, rows)
            found[name] = tuple(values[row] for row in back)
        elif name not in _IN_ORDER:
            found[name] = tuple(stored[name][back].tolist())
    found |= {"lane": tuple(stored["lane"].tolist()), "started": tuple(in_order.tolist())}
    found["failed"] = tuple((stored["failed"][back] != 0).tolist())
    return Blocks(**found)


def _encode_hops(hops: Hops) -> list[Any]:
    # Hops without an arrival are stored as 0, the others by their transit time, within ±2^62 us: from 1 up, or below 0.
    sent, arrived = _ints(hops.sent), _ints(hops.arrived)
    under_way = arrived - sent
    return _encode_table(hops, arrived=np.where(arrived == -1, 0, under_way + (under_way >= 0)), sent=_steps(sent))


def _decode_hops(packed: list[Any]) -> Hops:
    def placed(stored: dict[str, Any]) -> None:
        stored["sent"] = np.cumsum(stored["sent"])
        under_way = stored["arrived"]
        stored["arrived"] = np.where(under_way == 0, -1, stored["sent"] + under_way - (under_way > 0))

    return _decode_table(Hops, packed, placed)


def _encode_shards(shards: Shards) -> list[Any]:
    started = _ints(shards.started)
    steps = {"number": _steps(_ints(shards.number)), "started": _steps(started)}
    return _encode_table(shards, finished=_ints(shards.finished) - started, **steps)


def _decode_shards(packed: list[Any]) -> Shards:
    def placed(stored: dict[str, Any]) -> None:
        stored["number"], stored["started"] = np.cumsum(stored["number"]), np.cumsum(stored["started"])
        stored["finished"] = stored["started"] + stored["finished"]

    return _decode_table(Shards, packed, placed)


def _encode_table(table: Hops | Counters | Shards, **instead: Ints) -> list[Any]:
    rows = len(getattr(table, table.__struct_fields__[0]))
    columns: list[Any] = []
    for name in table.__struct_fields__:
        values = getattr(table, name)
        if name in _RAGGED:
            columns.append(_pack_ragged(values))
        elif name in _FLOATS:
            columns.append(_pack_floats(np.asarray(values, dtype=np.float64)))
        else:
            columns.append(_pack(instead.get(name, _ints(values))))
    return [rows, *columns]


def _decode_table(
    kind: type[Table], packed: list[Any], placed: Callable[[dict[str, Any]], None] | None = None
) -> Table:
    rows = packed[0]
    stored: dict[str, Any] = {}
    for name, data in zip(kind.__struct_fields__, packed[1:], strict=True):
        if name in _RAGGED:
            stored[name] = _unpack_ragged(data, rows)
        else:
            stored[name] = _unpack_floats(data, rows) if name in _FLOATS else _unpack(data, rows)
    if placed is not None:
        placed(stored)
    return kind(**{name: _tuple(values) for name, values in stored.items()})


def _tuple(values: Any) -> tuple[Any, ...]:
    """A tuple from a list or an array."""
    return tuple(cast(list[Any], values if isinstance(values, list) else values.tolist()))


# ── columns ─────────────────────────────────────────────────────────────────────────────────────


def _ints(values: Sequence[int]) -> Ints:
    return np.asarray(values, dtype=np.int64)


def _steps(values: Ints) -> Ints:
    """Differences of consecutive values; `cumsum` is the inverse. Both wrap."""
    return np.diff(values, prepend=np.int64(0))


def _pack(values: Ints) -> bytes:
    """Pack [n] integers."""
    folded = ((values << 1) ^ (values >> 63)).view(np.uint64)
    largest = int(folded.max()) if len(folded) else 0
    width = (largest.bit_length() + 7) // 8
    planes = folded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return bytes((width,)) + planes.T.tobytes()


def _unpack(data: bytes, count: int) -> Ints:
    width = data[0]
    planes = np.frombuffer(data, dtype=np.uint8, offset=1).reshape(width, count)
    wide = np.zeros((count, 8), dtype=np.uint8)
    wide[:, :width] = planes.T
    folded = wide.view("<u8").reshape(-1)
    return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)


def _pack_floats(values: NDArray[np.float64]) -> bytes:
    """Pack [n] floats by the significance of their bytes, as the low bytes of most are equal."""
    return values.astype("<f8").view(np.uint8).reshape(-1, 8).T.tobytes()


def _unpack_floats(data: bytes, count: int) -> NDArray[np.float64]:
    planes = np.frombuffer(data, dtype=np.uint8).reshape(8, count)
    return np.ascontiguousarray(planes.T).view("<f8").reshape(-1)


def _pack_ragged(rows: Sequence[tuple[int, ...]]) -> list[Any]:
    """[lengths, (length, one column per place) ...]: rows of equal length are stored together."""
    lengths = [len(row) for row in rows]
    packed: list[Any] = [_pack(_ints(lengths))]
    for length in sorted(set(lengths)):
        if length:
            alike = _ints([row for row in rows if len(row) == length])  # pyright: ignore[reportArgumentType]
            packed.append([length, [_pack(_steps(alike[:, place])) for place in range(length)]])
    return packed


def _unpack_ragged(packed: list[Any], count: int) -> list[tuple[int, ...]]:
    lengths = _unpack(packed[0], count)
    found: list[tuple[int, ...]] = [()] * count
    for length, columns in packed[1:]:
        rows = np.flatnonzero(lengths == length)
        places = [np.cumsum(_unpack(column, len(rows))).tolist() for column in columns]
        for row, values in zip(rows.tolist(), zip(*places, strict=True), strict=True):
            found[row] = values
    return found
