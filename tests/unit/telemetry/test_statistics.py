"""Figures over runs are those of all their calls, written out one by one."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.telling import A
from walkgraph.telemetry.critical import why
from walkgraph.telemetry.statistics import over, partial
from walkgraph.telemetry.trace import CALL, FOLDED, LAUNCH, Blocks, Lane, Trace

LANES = (
    Lane(rank=0, name="llm", nodes=("llm",), loop=False),
    Lane(rank=1, name="llm", nodes=("llm",), loop=False),
    Lane(rank=0, name="decode", nodes=("llm", "head"), loop=True),
)

BLOCK = st.tuples(
    st.sampled_from((CALL, LAUNCH, FOLDED)),
    st.integers(0, 2),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 100_000),
    st.integers(0, 100_000),
)
"""Kind, lane, count, batch, busy, queued."""


def trace(rows: list[tuple[int, int, int, int, int, int]]) -> Trace:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(6)]
    kind, lane, count, batch, busy, queued = map(tuple, columns)
    nothing, none = (0,) * len(rows), ((),) * len(rows)
    ended = tuple(100 + one for one in busy)
    blocks = Blocks(
        kind=kind,
        lane=lane,
        walk=nothing,
        use=nothing,
        step=nothing,
        iteration=none,
        count=count,
        number=nothing,
        batch=batch,
        mates=none,
        ready=nothing,
        taken=nothing,
        launched=nothing,
        started=(100,) * len(rows),
        finished=ended,
        busy=busy,
        queued=queued,
        pages_free=nothing,
        failed=(False,) * len(rows),
    )
    return Trace(
        run=A,
        deployment="d",
        task="t",
        state="done",
        level="full",
        wall=0.0,
        seconds=1.0,
        phases={"started": 0},
        names=("walk",),
        lanes=LANES,
        blocks=blocks,
    )


def rank_of(values: list[float], part: float) -> float:
    """The smallest of which at least such a part is not larger."""
    return sorted(values)[max(0, math.ceil(part * len(values) - 1e-9) - 1)]


@given(st.lists(st.lists(BLOCK, max_size=8), max_size=4))
def test_figures_are_those_of_all_calls_written_out(runs: list[list[tuple[int, int, int, int, int, int]]]) -> None:
    traces = [trace(rows) for rows in runs]
    found = over(partial(one, why(one)) for one in traces)
    assert found.runs == len(runs)
    assert len(found.nodes) == len({row[1] for rows in runs for row in rows})
    for node in found.nodes:
        rows = [
            row for rows in runs for row in rows if LANES[row[1]].name == node.node and LANES[row[1]].rank == node.rank
        ]
        took = [busy / count / 1e3 for _, _, count, _, busy, _ in rows for _ in range(count)]
        queued = [waited / count / 1e3 for _, _, count, _, _, waited in rows for _ in range(count)]
        batches = [batch for _, _, count, batch, _, _ in rows for _ in range(count)]
        assert node.calls == len(took)
        assert (node.p50, node.p95, node.p99) == tuple(rank_of(took, part) for part in (0.5, 0.95, 0.99))
        assert (node.queued_p50, node.queued_p95) == (rank_of(queued, 0.5), rank_of(queued, 0.95))
        assert node.batch_mean == pytest.approx(sum(batches) / len(batches))
        assert node.busy == pytest.approx(sum(busy / batch for _, _, _, batch, busy, _ in rows) / 1e6)


def test_the_share_is_that_of_the_paths() -> None:
    one, two = trace([(CALL, 0, 1, 1, 499_900, 100)]), trace([(CALL, 1, 1, 1, 249_900, 100)])
    summary = trace([(FOLDED, 0, 1, 1, 900_000, 100)])
    found = over(partial(each, why(each)) for each in (one, two, summary))
    # Half of the first and a quarter of the second, of two seconds; `summary` has no path.
    assert [(node.rank, node.share) for node in found.nodes] == [(0, pytest.approx(0.25)), (1, pytest.approx(0.125))]
