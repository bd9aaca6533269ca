"""The plan's tables, compared with tables written by hand: ranks, orders, routes between ranks, twins and moves."""

from typing import Any

import pytest

from tests.support.placing import at, planned
from walkgraph.placement.tables import EdgePlan, Plan, WalkPlan


def plan_of(*groups: dict[str, Any], **rest: Any) -> Plan:
    made = planned(*groups, **rest)
    assert made.plan is not None, made.problems
    return made.plan


def walk_of(plan: Plan, name: str, *, chunked: bool = False) -> WalkPlan:
    return next(w for w in plan.walks if w.name == name and w.chunked == chunked)


def edge_of(walk: WalkPlan, source: str, target: str) -> EdgePlan:
    """`use.port`, or `kind.port` for what is no use."""

    def name(end: Any) -> str:
        return f"{walk.uses[end.use].name if end.use >= 0 else end.kind}.{end.port}"

    return next(e for e in walk.edges if (name(e.source), name(e.target)) == (source, target))


def uses(walk: WalkPlan) -> list[tuple[str, str, int]]:
    return [(use.name, use.op, use.rank) for use in walk.uses]


def test_a_fork_on_one_rank_is_one_use() -> None:
    walk = walk_of(plan_of(), "prefill")
    assert uses(walk) == [("read", "call", 0), ("fork:main>guide", "fork", 0), ("llm", "call", 0)]
    fork, llm = walk.uses[1:]
    assert (fork.states, fork.writes, fork.when, fork.node) == ((0, 1), (1,), ("scale > 1",), -1)
    assert (llm.before, llm.writes) == ((1,), (0,))


def test_a_fork_across_ranks_is_exported_and_imported() -> None:
    walk = walk_of(plan_of(at(1, "guide")), "prefill")
    assert uses(walk) == [
        ("read", "call", 0),
        ("export:main", "export", 0),
        ("import:guide", "import", 1),
        ("llm", "call", 0),
    ]
    export, take, llm = walk.uses[1:]
    assert (export.states, take.states, export.writes, take.writes) == ((0,), (1,), (), (1,))
    assert export.when == take.when == ("scale > 1",)
    assert (take.before, llm.before) == ((), (1,))
    edge = edge_of(walk, "export:main.state", "import:guide.state")
    assert (edge.transport, edge.common, edge.carried) == ("shm", 0, False)
    assert walk.ranks == (0, 1)


def test_a_state_is_only_where_a_node_that_is_bound_to_it_is_used() -> None:
    # By default `guide` would be on rank 0, but there it is never used.
    plan = plan_of(at(1, "guide", walks=("draw",)))
    assert [use.op for use in walk_of(plan, "prefill").uses] == ["call", "export", "import", "call"]
    assert not [walk for walk in plan.walks if walk.name.startswith("move:")]
    for walk in plan.walks:
        for use in walk.uses:
            holders = [n for n in plan.ranks[use.rank].nodes if set(plan.nodes[n].states.values()) & set(use.states)]
            assert holders or not use.states


def test_scratch_appends_only_read() -> None:
    plan = plan_of()
    draw, decode = walk_of(plan, "draw"), walk_of(plan, "decode")
    assert all(use.writes == () for use in draw.uses)
    assert [use.writes for use in decode.uses if use.name == "llm"] == [(0,)]


@pytest.mark.parametrize(
    ("devices", "source", "target", "transport"),
    [
        (("cpu", "cpu"), "mix.latents", "guide.latents", "shm"),
        (("cuda:0", "cuda:1"), "mix.latents", "guide.latents", "cuda_ipc"),
        (("cuda:0", "cpu"), "mix.latents", "guide.latents", "shm"),
        (("cuda:0", "cuda:1"), "mix.latents", "llm.latents", "local"),
    ],
)
def test_transports(devices: tuple[str, str], source: str, target: str, transport: str) -> None:
    walk = walk_of(plan_of(at(1, "guide"), devices=devices), "draw")
    assert edge_of(walk, source, target).transport == transport


def test_tiny_values_and_media_ride_in_messages() -> None:
    plan = plan_of(at(1, "say", "paint"))
    assert edge_of(walk_of(plan, "decode"), "llm.token", "say.token").transport == "inline"
    assert edge_of(walk_of(plan, "decode"), "say.text", "out.text").transport == "control"
    assert edge_of(walk_of(plan, "draw"), "mix.latents", "paint.latents").transport == "shm"


def test_outputs_know_what_they_are() -> None:
    plan = plan_of()
    sent = {e.target.port: e.target.modality for walk in plan.walks for e in walk.edges if e.target.kind == "out"}
    assert sent == {"text": "text", "image": "image", "audio": "audio"}


def test_results_travel_to_where_they_are_read() -> None:
    split = plan_of(at(1, "llm", "say", walks=("decode",)))
    assert edge_of(walk_of(split, "prefill"), "llm.token", "result.token").transport == "inline"
    assert edge_of(walk_of(plan_of(), "prefill"), "llm.token", "result.token").transport == "local"


def test_loops_tell_their_ranks_and_their_end() -> None:
    plan = plan_of(at(1, "say"))
    (loop,) = walk_of(plan, "decode").loops
    assert (loop.name, loop.times, loop.parent, loop.until, loop.drop_last) == (
        "tokens",
        "times",
        -1,
        (0, "stop"),
        True,
    )
    assert loop.ranks == (0, 1)
    carried = [e for e in walk_of(plan, "decode").edges if e.carried]
    assert [(e.source.use, e.target.use, e.common) for e in carried] == [(0, 0, 1)]


def test_a_walk_run_per_chunk_has_a_twin() -> None:
    plan = plan_of()
    twin = walk_of(plan, "speak", chunked=True)
    assert twin.index == 6
    (chunk,) = twin.loops
    assert (chunk.name, chunk.times, chunk.stream, chunk.until, chunk.ranks) == ("chunk", "", 0, None, (0,))
    assert twin.uses[0].loops == (0,)
    entering, leaving = edge_of(twin, "stream.heard", "voice.tokens"), edge_of(twin, "voice.audio", "out.audio")
    assert (entering.enter_each, entering.common) == (True, 0)
    assert leaving.leave == "each"
    assert twin.state_scopes == {3: 0}


def test_streams_know_both_ends() -> None:
    plan = plan_of(at(1, "voice"))
    (stream,) = plan.streams
    assert (stream.producers, stream.consumers, stream.walks) == ((0,), (1,), (1,))
    assert (stream.policy, stream.settings, stream.credits) == ("fixed", {"size": 4}, 8)
    edge = edge_of(walk_of(plan, "decode"), "llm.token", "stream.heard")
    assert (edge.leave, edge.transport, edge.target.index) == ("each", "inline", 0)


def test_states_that_change_rank_have_walks_of_their_own() -> None:
    plan = plan_of(at(1, "llm", "say", walks=("decode",)))
    moves = [walk for walk in plan.walks if walk.name.startswith("move:")]
    assert [walk.name for walk in moves] == ["move:main:0>1", "move:main:1>0"]
    there = moves[0]
    assert [(use.op, use.rank, use.states, use.writes) for use in there.uses] == [
        ("export", 0, (0,), ()),
        ("import", 1, (0,), (0,)),
    ]
    assert (there.edges[0].source.port, there.edges[0].transport) == ("state", "shm")


def test_no_moves_where_nothing_moves() -> None:
    assert not [walk for walk in plan_of(at(1, "guide")).walks if walk.name.startswith("move:")]


def test_nodes_merge_their_components_parameters() -> None:
    llm, guide = plan_of().nodes[1:3]
    assert (llm.params, llm.defaults) == ({"time": 0.0, "heat": "=heat"}, {"heat": 1.0})
    assert (guide.params, guide.defaults) == ({"time": 0.5, "heat": 1.0}, {})
    assert plan_of().nodes[4].required == ("latents", "velocity")


def test_the_digest_tells_graphs_and_placements_apart() -> None:
    digests = {plan_of().digest, plan_of(at(1, "guide")).digest}
    assert len(digests) == 2
    assert plan_of().digest in digests
