"""Loops inside a resident one, unrolled when a run enters: the same calls, outputs and results as stepped ones."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.nested_walks import nested
from tests.unit.worker.test_resident import agree
from walkgraph.graph.document import Graph

QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(nested(), st.integers(0, 99))
def test_unrolled_loops_do_what_stepped_ones_do(graph: Graph, seed: int) -> None:
    fast = agree(graph, [0] * len(graph.nodes), seed)
    loops = {loop.name: loop for loop in fast.plan.walks[0].loops}
    assert loops["r"].resident, loops["r"].why
    roots = {loop.name for loop in loops.values() if loop.resident and loop.within < 0}
    assert {call.loop for call in fast.loops} <= roots < loops.keys()
