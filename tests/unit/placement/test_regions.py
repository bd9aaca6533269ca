"""Which loops run on the device as a whole, and the sentence that says why."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.random_walks import RESIDENT
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue, Param, StateUse
from walkgraph.ids import Rank
from walkgraph.placement.assemble import assemble
from walkgraph.placement.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.resources import bundled
from walkgraph.worker.tables import walk_tables

MIX = replace(
    RESIDENT["test.mix"],
    params={"time": Param(type="number", default=0.0), "word": Param(type="string", default="")},
    states=(StateUse(slot="s", kind="tensor", optional=True),),
)
CATALOGUE: Catalogue = {
    "test.mix": MIX,
    "test.host": replace(MIX, name="test.host", host=True),
    "test.old": replace(MIX, name="test.old", resident=False),
}
LOOP: dict[str, Any] = {"loop": "l", "times": "5", "body": ["u", "v"]}
OUTER: dict[str, Any] = {"loop": "outer", "times": "2", "body": ["w", LOOP]}


def planned(
    walk: dict[str, Any],
    v: dict[str, Any] | None = None,
    rank: int = 0,
    *,
    u: dict[str, Any] | None = None,
    components: Catalogue = CATALOGUE,
    resident: bool = True,
    **rest: Any,
) -> Plan:
    nodes: dict[str, dict[str, Any]] = {name: {"component": "test.mix"} for name in "uvw"}
    nodes["u"] |= u or {}
    nodes["v"] |= v or {}
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}, **walk}
    document = {"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}, **rest}
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("v",), ranks=(rank,)))
    placement = Placement(name="p", groups=groups, ranks=tuple(RankDevice(rank=r, device="cpu") for r in (0, 1)))
    graph = codec.load(json.dumps(document).encode())
    return assemble(Assignment(graph, placement), components, resident=resident)


def whys(plan: Plan) -> list[str]:
    assert all(loop.resident != loop.why.startswith("stepped: ") for loop in plan.walks[0].loops)
    return [loop.why for loop in plan.walks[0].loops]


def test_a_loop_with_a_count_is_static() -> None:
    why = "`l` runs on the device: `u` and `v` on rank 0, static: several iterations a launch"
    assert whys(planned({"body": [LOOP]})) == [why]


def test_a_loop_that_a_flag_ends_is_launched_one_by_one() -> None:
    why = "`l` runs on the device: `u` and `v` on rank 0, one iteration a launch because `v.stop` ends it"
    assert whys(planned({"body": [LOOP | {"until": "v.stop"}]})) == [why]


def test_a_loop_inside_is_unrolled_and_a_condition_on_it_skips_it() -> None:
    inner = LOOP | {"when": "@loop.index > 0"}
    outer, found = whys(planned({"body": [OUTER | {"body": ["w", inner]}]}))
    assert outer == (
        "`outer` runs on the device: `w` and `l` unrolled (`u` and `v`) on rank 0, static: several iterations a launch"
    )
    assert found == "unrolled in `outer`"


def test_where_the_outer_loop_must_be_stepped_the_inner_one_runs_by_itself() -> None:
    outer, found = whys(planned({"body": [OUTER | {"body": ["w", LOOP | {"until": "u.stop"}]}]}))
    assert outer == "stepped: `l` is inside it, and `u.stop` ends that"
    assert found.startswith("`l` runs on the device: `u` and `v` on rank 0, one iteration")


FOLLOWED: list[tuple[str, str, list[Any], list[Any], list[int]]] = [
    ("`u` on rank 0", "`v` follows", ["u", "v"], [["u.out", "v.a"]], [0]),
    ("`w` on rank 0", "`v` and `u` follow", ["v", "u", "w"], [["v.out", "u.a"]], [2]),
    ("`w` on rank 0", "`u` and `v` follow", ["u", "v", "w"], [["v.out", "u.a"]], [2]),
    ("`u` and `w` on rank 0", "`v` follows", ["u", "v", "w"], [["w.out", "v.a"], ["u.out", "w.a"]], [0, 2]),
    (
        "`w` on rank 0",
        "`v` and `u` follow",
        [{"use": "v", "when": "@loop.index > 2"}, "u", "w"],
        [["v.out", "u.a"]],
        [2],
    ),
]


@pytest.mark.parametrize(("core", "behind", "body", "edges", "places"), FOLLOWED)
def test_what_waits_for_a_use_of_the_host_follows_with_it(
    core: str, behind: str, body: list[Any], edges: list[Any], places: list[int]
) -> None:
    plan = planned({"body": [LOOP | {"body": body}], "edges": edges}, v={"component": "test.host"})
    assert whys(plan) == [f"`l` runs on the device: {core}, static: several iterations a launch; {behind}, stepped"]
    assert list(plan.walks[0].loops[0].core) == places


def test_followers_may_lie_on_other_ranks_and_share_what_nobody_writes() -> None:
    plan = planned({"body": [LOOP | {"until": "u.stop"}], "edges": [["u.out", "v.a"]]}, rank=1, **HOST)
    (loop,) = plan.walks[0].loops
    assert (loop.resident, loop.core, loop.ranks) == (True, (0,), (0, 1))
    only_read = replace(MIX, states=(StateUse(slot="s", kind="tensor", access="read"),))
    known = CATALOGUE | {"test.mix": only_read, "test.host": replace(only_read, name="test.host", host=True)}
    assert whys(planned({"body": [LOOP]}, components=known, **SHARED))[0].endswith("`v` follows, stepped")


@pytest.mark.parametrize(
    ("whole", "own"), [("n > 1", None), ("n > 1", "@loop.index > 1"), ("@loop.l > 1", "on"), (None, "n > 1")]
)
def test_conditions_that_all_share_skip_the_loop_and_others_skip_uses(whole: str | None, own: str | None) -> None:
    """`whole` is every use's; one that reads the index is asked at every iteration, as `own` is."""
    body = [{"sequence": ["u", {"use": "v", "when": own}], "when": whole}]
    plan = planned({"body": [LOOP | {"body": body}]})
    assert plan.walks[0].loops[0].resident
    folded = walk_tables(plan, Rank(0))[0].uses[0]
    assert folded.region is not None
    common = [whole] if whole == "n > 1" else []
    assert list(folded.plan.when) == common
    every = [text for text in (whole,) if text and text not in common]
    assert [list(use.when) for use in folded.region.plan.uses] == [every, every + [own] * (own is not None)]


@pytest.mark.parametrize("name", ["bagel", "shapes"])
def test_what_draws_and_writes_runs_on_the_device_and_is_watched_from_outside(name: str) -> None:
    graph = codec.load(bundled("graphs")[name].read_bytes())
    one = Placement(name="p", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
    plan = assemble(Assignment(graph, one), catalogue())
    found = {
        (walk.name, loop.name): [walk.uses[use].name for use in loop.core] for walk in plan.walks for loop in walk.loops
    }
    assert found == {
        ("decode", "tokens"): ["llm"],
        ("image_gen_cfg", "denoise"): ["llm", "llm_cfg_text", "llm_cfg_img", "combine_cfg"],
        ("image_gen", "denoise"): ["llm", "combine_cfg"],
    }


def test_a_plan_may_step_all() -> None:
    assert whys(planned({"body": [LOOP]}, resident=False)) == ["stepped: this plan steps every loop"]


STATE = {"states": {"s": {"kind": "tensor", "scope": "iteration"}}}
HOST = {"v": {"component": "test.host"}}
SHARED: dict[str, Any] = {
    "u": {"states": {"s": "s"}},
    "v": {"component": "test.host", "states": {"s": "s"}},
    "states": {"s": {"kind": "tensor"}},
}
TURNED = LOOP | {"body": ["v", "u"]}
REASONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "`u` and `w` wait for `v`, `v` runs on the host",
        {"body": [LOOP | {"body": ["u", "w", "v"]}], "edges": [["v.out", "u.a"], ["v.out", "w.a"]]},
        HOST,
    ),
    ("its uses lie on ranks 0 and 1", {"body": [LOOP]}, {"rank": 1}),
    ("`v` runs on the host", {"body": [LOOP | {"body": ["v"]}]}, HOST),
    ("`v` can't be iterated on the device", {"body": [LOOP | {"body": ["v"]}]}, {"v": {"component": "test.old"}}),
    ("`v` runs on the host, `u` waits for `v`", {"body": [TURNED], "edges": [["v.out", "u.a"]]}, HOST),
    ("`u` waits for `v`, `v` runs on the host", {"body": [LOOP], "edges": [["v.out", "u.a"]]}, HOST),
    ("`v`, which ends it, runs on the host", {"body": [LOOP | {"until": "v.stop"}]}, HOST),
    (
        "`w`, which ends it, waits for `v`",
        {"body": [LOOP | {"body": ["u", "v", "w"], "until": "w.stop"}], "edges": [["v.out", "w.a"]]},
        HOST,
    ),
    (
        "`v`, which ends it, has a condition",
        {"body": [LOOP | {"body": ["u", {"use": "v", "when": "n > 1"}], "until": "v.stop"}]},
        {},
    ),
    (
        "`v` has a condition, and `v.out` is carried",
        {"body": [LOOP | {"body": ["u", {"use": "v", "when": "@loop.index > 1"}]}], "edges": [["v.out", "u.a"]]},
        {},
    ),
    ("`u.a` has no value in the first iteration", {"body": [LOOP], "edges": [["v.out", "u.a"]]}, {}),
    ("`v.a` is fed twice", {"body": [LOOP], "edges": [["u.out", "v.a"], ["u.maybe", "v.a"]]}, {}),
    ("`u` and `v`, which would follow, share state `s`", {"body": [LOOP]}, HOST | SHARED),
    ("`v` runs on the host, `u` waits for `v`", {"body": [TURNED]}, HOST | SHARED),
    ("state `s` starts anew in every iteration", {"body": [LOOP]}, {"v": {"states": {"s": "s"}}, **STATE}),
    (
        "parameter `word` of `v` changes with its index and is no number",
        {"body": [LOOP]},
        {"v": {"params": {"word": "=@loop.index"}}},
    ),
    (
        "several of its uses feed streams, each at its own pace",
        {"body": [LOOP]},
        {
            "streams": [
                {"name": name, "from": f"{name}.out", "walks": ["w"], "chunks": {"policy": "fixed", "size": 2}}
                for name in "uv"
            ]
        },
    ),
]


@pytest.mark.parametrize(("why", "walk", "rest"), REASONS, ids=[why for why, _, _ in REASONS])
def test_what_makes_a_loop_stepped(why: str, walk: dict[str, Any], rest: dict[str, Any]) -> None:
    assert whys(planned(walk, **rest)) == [f"stepped: {why}"]


@pytest.mark.parametrize(
    ("why", "outer", "edges"),
    [
        ("loop `outer` is ended from inside it", {"until": "v.stop"}, []),
        (
            "`v.a` is fed from inside it and from an iteration of the loop around it",
            {"body": ["w", LOOP, "w2"]},
            [["u.out", "v.a"], ["w2.out", "v.a"]],
        ),
        (
            "`v.a` is fed slice by slice and whole",
            {"body": ["w", LOOP, "w2"]},
            [{"from": "w.many", "to": "v.a", "each": True}, ["w2.out", "v.a"]],
        ),
    ],
)
def test_what_a_loop_around_it_may_do(why: str, outer: dict[str, Any], edges: list[Any]) -> None:
    body = [{"use": "w", "as": use} if use == "w2" else use for use in (OUTER | outer)["body"]]
    body = [one | {"until": "u.stop"} if isinstance(one, dict) and "loop" in one else one for one in body]
    plan = planned({"body": [OUTER | outer | {"body": body}], "edges": edges})
    assert whys(plan) == ["stepped: `l` is inside it, and `u.stop` ends that", f"stepped: {why}"]


def test_a_stream_that_feeds_it_steps_it() -> None:
    stream = {"name": "s", "from": "w.out", "walks": ["w"], "chunks": {"policy": "fixed", "size": 2}}
    plan = planned({"body": [LOOP], "edges": [["@stream.s", "v.a"]]}, streams=[stream])
    assert whys(plan) == ["stepped: stream `s` feeds it"]


def test_only_its_own_rank_folds_a_loop() -> None:
    plan = planned(
        {"body": [LOOP, "w"], "edges": [["u.out", "v.a"], ["@in.x", "u.a"], ["v.out", "u.a"], ["v.out", "w.a"]]}
    )
    here, there = (walk_tables(plan, rank.rank)[0] for rank in plan.ranks)
    assert {index: table.plan.op for index, table in here.uses.items()} == {0: "loop", 2: "call"}
    assert there.uses == {}
    assert there.plan == plan.walks[0]
    assert [edge.index for edge in here.plan.edges] == [edge.index for edge in plan.walks[0].edges]
    assert [port for port, _ in here.uses[0].inputs] == ["u.a"]
