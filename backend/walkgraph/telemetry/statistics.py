"""Statistics of nodes over many runs: durations and waits of their calls, and their share of the runs' time.

Each trace is reduced once to a `Partial`, which is small enough to keep.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from walkgraph.telemetry.critical import Why
from walkgraph.telemetry.trace import Trace


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of a node, or of a device loop (whose nodes' times are unknown), on one rank."""

    node: str
    rank: int
    loop: bool
    nodes: tuple[str, ...]
    calls: int
    """Calls, or iterations of a loop."""
    p50: float
    """Milliseconds of compute per call or iteration, counting its whole batch, as that is what a run waits for. With
    `summary` telemetry, from averages over several calls."""
    p95: float
    p99: float
    queued_p50: float
    """Milliseconds from ready to started, measured like `p50`."""
    queued_p95: float
    batch_mean: float
    """Rows in a call's batch."""
    share: float
    """Share of the runs' critical paths, 0 to 1: computing, and being queued and launched for it. 0 without a path."""
    busy: float
    """Seconds on its device. A batch's time is divided equally among its rows, as each is in another run's trace."""


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    runs: int
    nodes: tuple[NodeFigures, ...]
    """Those that the runs waited for longest come first."""


LaneKey = tuple[str, int, bool]
"""Name, rank, true for a loop."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Partial:
    """The contribution of one trace."""

    seconds: float
    """Seconds of its critical path; 0 without one."""
    lanes: dict[LaneKey, tuple[Floats, Floats, Floats, Floats]]
    """For each block: calls; milliseconds per call; milliseconds queued per call; rows of its batch."""
    on_path: dict[LaneKey, float]
    """Seconds on the critical path."""
    nodes: dict[LaneKey, tuple[str, ...]]


@dataclass(slots=True)
class _Gathered:
    parts: list[tuple[Floats, Floats, Floats, Floats]] = field(
        default_factory=list[tuple[Floats, Floats, Floats, Floats]]
    )
    on_path: float = 0.0
    nodes: dict[str, None] = field(default_factory=dict[str, None])


def partial(trace: Trace, why: Why) -> Partial:
    keys: list[LaneKey] = [(lane.name, lane.rank, lane.loop) for lane in trace.lanes]
    b = trace.blocks
    lane = np.asarray(b.lane, dtype=np.int64)
    count, busy, queued, batch = (
        np.asarray(column, dtype=np.float64) for column in (b.count, b.busy, b.queued, b.batch)
    )
    each = np.maximum(1.0, count)
    lanes: dict[LaneKey, tuple[Floats, Floats, Floats, Floats]] = {}
    for number, key in enumerate(keys):
        rows = lane == number
        if rows.any():
            figures = (count[rows], (busy / each)[rows] / 1e3, (queued / each)[rows] / 1e3, batch[rows])
            lanes[key] = figures
    on_path: dict[LaneKey, float] = defaultdict(float)
    for piece in why.path:
        if piece.lane >= 0 and piece.kind in ("compute", "queue", "launch"):
            on_path[keys[piece.lane]] += (piece.ended - piece.began) / 1e6
    nodes = {key: lane.nodes for key, lane in zip(keys, trace.lanes, strict=True)}
    return Partial(seconds=why.seconds if why.path else 0.0, lanes=lanes, on_path=dict(on_path), nodes=nodes)


def over(partials: Iterable[Partial]) -> Statistics:
    gathered: dict[LaneKey, _Gathered] = defaultdict(_Gathered)
    runs, seconds = 0, 0.0
    for found in partials:
        runs, seconds = runs + 1, seconds + found.seconds
        for key, figures in found.lanes.items():
            gathered[key].parts.append(figures)
            gathered[key].nodes.update(dict.fromkeys(found.nodes[key]))
        for key, spent in found.on_path.items():
            gathered[key].on_path += spent
    nodes = [_figures(key, all_, seconds) for key, all_ in gathered.items() if all_.parts]
    nodes.sort(key=lambda node: (-node.share, -node.busy, node.node, node.rank))
    return Statistics(runs=runs, nodes=tuple(nodes))


def _figures(key: LaneKey, gathered: _Gathered, seconds: float) -> NodeFigures:
    calls, took, queued, batch = (np.concatenate(column) for column in zip(*gathered.parts, strict=True))
    name, rank, loop = key
    total = float(calls.sum())
    p50, p95, p99 = weighted(took, calls, (0.5, 0.95, 0.99))
    queued_p50, queued_p95 = weighted(queued, calls, (0.5, 0.95))
    return NodeFigures(
        node=name,
        rank=rank,
        loop=loop,
        nodes=tuple(gathered.nodes),
        calls=int(total),
        p50=p50,
        p95=p95,
        p99=p99,
        queued_p50=queued_p50,
        queued_p95=queued_p95,
        batch_mean=float((batch * calls).sum() / total) if total else 0.0,
        share=gathered.on_path / seconds if seconds else 0.0,
        busy=float((took * calls / np.maximum(1.0, batch)).sum() / 1e3),
    )


def weighted(values: Floats, weights: Floats, at: Sequence[float]) -> list[float]:
    """Weighted quantiles of [n] values, each counted as often as its weight: the smallest value up to which at least
    the given share lies. 0.0 without values."""
    if not len(values) or not weights.sum():
        return [0.0] * len(at)
    order = np.argsort(values, kind="stable")
    up_to: Floats = np.cumsum(weights[order])
    # Minus a rounding error, so that a share that ends exactly at a value gets that value.
    parts: Floats = np.asarray(at, dtype=np.float64) * float(up_to[-1]) * (1 - 1e-12)
    places: NDArray[np.intp] = np.searchsorted(up_to, parts, side="left")
    return values[order][np.minimum(places, len(values) - 1)].tolist()
