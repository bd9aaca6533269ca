"""Some loops run on the device as a whole; a sentence says why others don't."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.random_walks import RESIDENT
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue, Param, StateUse
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.compiler.loop_decisions import apart
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.resources import bundled
from walkgraph.worker.tables.rank_tables import walk_tables

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
    w: dict[str, Any] | None = None,
    components: Catalogue = CATALOGUE,
    resident: bool = True,
    device: str = "cpu",
    **rest: Any,
) -> Plan:
    nodes: dict[str, dict[str, Any]] = {name: {"component": "test.mix"} for name in "uvw"}
    nodes["u"] |= u or {}
    nodes["v"] |= v or {}
    nodes["w"] |= w or {}
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}, **walk}
    document = {"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}, **rest}
    groups = (Group(nodes=("*",), ranks=(0,)), Group(nodes=("v",), ranks=(rank,)))
    placement = Placement(
        name="p", groups=groups, ranks=tuple(RankDevice(rank=r, device=device.format(r)) for r in (0, 1))
    )
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
    assert whys(planned({"body": [LOOP]}, **READING, **SHARED))[0].endswith("`v` follows, stepped")


@pytest.mark.parametrize(
    ("whole", "own"), [("n > 1", None), ("n > 1", "@loop.index > 1"), ("@loop.l > 1", "on"), (None, "n > 1")]
)
def test_conditions_that_all_share_skip_the_loop_and_others_skip_uses(whole: str | None, own: str | None) -> None:
    """`whole` is every use's; one that reads the index is asked at every iteration, as `own` is."""
    body = [{"sequence": ["u", {"use": "v", "when": own}], "when": whole}]
    plan = planned({"body": [LOOP | {"body": body}]})
    assert plan.walks[0].loops[0].resident
    standing = walk_tables(plan, Rank(0))[0].uses[0]
    assert standing.device_loop is not None
    common = [whole] if whole == "n > 1" else []
    assert list(standing.plan.when) == common
    every = [text for text in (whole,) if text and text not in common]
    assert [list(use.when) for use in standing.device_loop.loop.uses] == [every, every + [own] * (own is not None)]


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
ONLY_READ = replace(MIX, states=(StateUse(slot="s", kind="tensor", access="read"),))
READING = {
    "components": CATALOGUE | {"test.mix": ONLY_READ, "test.host": replace(ONLY_READ, name="test.host", host=True)}
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
    (
        "state `s` starts anew in every iteration, and not only the core has it",
        {"body": [LOOP]},
        {**READING, "v": {"component": "test.host", "states": {"s": "s"}}, "u": {"states": {"s": "s"}}, **STATE},
    ),
    (
        "parameter `word` of `v` changes with its index and is not a number",
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


def test_only_its_own_rank_has_one_use_for_a_loop() -> None:
    plan = planned(
        {"body": [LOOP, "w"], "edges": [["u.out", "v.a"], ["@in.x", "u.a"], ["v.out", "u.a"], ["v.out", "w.a"]]}
    )
    here, there = (walk_tables(plan, rank.rank)[0] for rank in plan.ranks)
    assert {index: table.plan.op for index, table in here.uses.items()} == {0: "loop", 2: "call"}
    assert there.uses == {}
    assert there.plan == plan.walks[0]
    assert [edge.index for edge in here.plan.edges] == [edge.index for edge in plan.walks[0].edges]
    assert [port for port, _ in here.uses[0].inputs] == ["u.a"]


# ── loops inside ────────────────────────────────────────────────────────────────────────────────

INNER: dict[str, Any] = {"loop": "inner", "times": "3", "body": ["v"]}
"""In `l`, after `u`."""
FORKED: dict[str, Any] = {
    "v": {"states": {"s": "copy"}},
    "w": {"states": {"s": "main"}},
    "states": {"main": {"kind": "tensor"}, "copy": {"kind": "tensor", "width": "n"}},
}
FORK = {"fork": "main", "into": "copy"}


def around(*body: Any, **more: Any) -> dict[str, Any]:
    return LOOP | {"body": list(body)} | more


NESTED_REASONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("`inner` is inside it, and `v.stop` ends that", {"body": [around("u", INNER | {"until": "v.stop"})]}, {}),
    (
        "`inner` is inside it, and its count changes with an index",
        {"body": [around("u", INNER | {"times": "@loop.index + 1"})]},
        {},
    ),
    ("`v`, in `inner` inside it, runs on the host", {"body": [around("u", INNER)]}, HOST),
    (
        "`u` runs on the host",
        {"body": [around("u", INNER)], "edges": [["u.out", "v.a"]]},
        {"u": {"component": "test.host"}},
    ),
    ("`inner` is inside it, and its uses lie on ranks 0 and 1", {"body": [around("u", INNER)]}, {"rank": 1}),
    (
        "`v.out`, in `inner` inside it, leaves one by one",
        {"body": [around("u", INNER)], "edges": [{"from": "v.out", "to": "@out.o", "each": True}]},
        {},
    ),
    (
        "`v.out`, in `inner` inside it, is collected for `w`, which follows",
        {"body": [around("u", INNER, "w")], "edges": [{"from": "v.out", "to": "w.a", "collect": True}]},
        {"w": {"component": "test.host"}},
    ),
    (
        "`v.out`, in `inner` inside it, is collected and carried",
        {
            "body": [around("u", INNER)],
            "edges": [{"from": "v.out", "to": "u.a", "collect": True}, ["@in.x", "u.a"]],
        },
        {},
    ),
    (
        "`v`, in `inner` inside it, is skipped at times, and `v.out` is collected",
        {
            "body": [around("u", INNER | {"body": [{"use": "v", "when": "@loop.l > 0"}]}, "w")],
            "edges": [{"from": "v.out", "to": "w.a", "collect": True}],
        },
        {},
    ),
    (
        "`v.a` is fed slice by slice from the iteration before",
        {
            "body": [around("u", INNER, "w")],
            "edges": [{"from": "w.many", "to": "v.a", "each": True}, ["@in.x", "v.a"]],
        },
        {},
    ),
    (
        "`v.b` is fed slice by slice with what is collected in `inner` inside it",
        {
            "body": [
                around({"loop": "inner", "times": "3", "body": ["u"]}, {"loop": "last", "times": "2", "body": ["v"]})
            ],
            "edges": [{"from": "u.out", "to": "v.b", "collect": True, "each": True}],
        },
        {},
    ),
    (
        "state `s` starts anew in every iteration of `inner` inside it",
        {"body": [around("u", INNER)]},
        {"v": {"states": {"s": "s"}}, **STATE},
    ),
    (
        "`fork:main>copy`, in `inner` inside it, copies a state",
        {"body": [around("u", INNER | {"body": [FORK, "v"]})]},
        FORKED,
    ),
    (
        "`fork:main>copy` copies state `main`, which `w` changes",
        {"body": [around("w", FORK, INNER)]},
        FORKED,
    ),
    ("`fork:main>copy` copies a state", {"body": [around("u", FORK | {"when": "n > 1"}, INNER)]}, FORKED),
    (
        "`fork:main>copy` copies into state `copy`, which `v2` has otherwise",
        {"body": [around({"use": "v", "as": "v2"}, FORK, INNER)]},
        FORKED,
    ),
]


@pytest.mark.parametrize(("why", "walk", "rest"), NESTED_REASONS, ids=[why for why, _, _ in NESTED_REASONS])
def test_what_keeps_a_loop_from_being_unrolled(why: str, walk: dict[str, Any], rest: dict[str, Any]) -> None:
    assert whys(planned(walk, **rest))[0] == f"stepped: {why}"


def test_what_lies_deeper_ends_no_loop() -> None:
    why = whys(planned({"body": [around("u", INNER, until="v.stop")]}))[0]
    assert why == "stepped: `v`, which ends it, is in `inner`"


def test_a_copy_that_nothing_changes_is_made_once() -> None:
    plan = planned({"body": ["w", around("u", FORK, INNER)]}, **FORKED)
    outer, inner = plan.walks[0].loops
    assert outer.why == (
        "`l` runs on the device: `u` and `inner` unrolled (`v`) on rank 0, static: several iterations a launch; `copy` "
        "begins every iteration as a copy"
    )
    assert [plan.walks[0].uses[use].op for use in outer.forks] == ["fork"]
    assert (inner.resident, inner.within, [plan.walks[0].uses[use].name for use in inner.core]) == (True, 0, ["v"])
    assert not set(outer.forks) & set(outer.core)


def test_a_state_of_an_iteration_begins_anew() -> None:
    (loop,) = planned({"body": [LOOP]}, v={"states": {"s": "s"}}, **STATE).walks[0].loops
    assert loop.resident
    assert loop.why.endswith("static: several iterations a launch; `s` begins every iteration empty")


def test_on_several_gpus_nothing_begins_anew() -> None:
    body = around("u", "v", {"use": "u", "as": "u2"})
    gpus: dict[str, Any] = {"rank": 1, "device": "cuda:{}"}
    edges = [["u.out", "v.a"], ["v.out", "u2.a"]]
    assert planned({"body": [body], "edges": edges}, **gpus).walks[0].loops[0].resident
    (why,) = whys(planned({"body": [body], "edges": edges}, u={"states": {"s": "s"}}, **STATE, **gpus))
    assert why == "stepped: state `s` starts anew in every iteration, and its uses lie on several ranks"
    rest = {"w": FORKED["w"], "u": FORKED["v"], "states": FORKED["states"]}
    forked = body | {"body": [FORK, *body["body"]]}
    (why,) = whys(planned({"body": ["w", forked], "edges": edges}, **rest, **gpus))
    assert why == "stepped: `fork:main>copy` is in it, and its uses lie on several ranks"


def test_loops_three_deep_are_told_one_within_the_other() -> None:
    deep = INNER | {"body": ["v", {"loop": "deepest", "times": "2", "body": ["w"]}]}
    first, *inside = planned({"body": [around("u", deep)]}).walks[0].loops
    assert "`u` and `inner` unrolled (`v` and `deepest` unrolled (`w`)) on rank 0" in first.why
    assert [(loop.why, loop.core) for loop in inside] == [("unrolled in `l`", ()), ("unrolled in `l`", (2,))]


def test_a_plan_apart_steps_what_has_loops_inside() -> None:
    plan = planned({"body": ["w", around("u", FORK, INNER)]}, **FORKED)
    outer, inner = apart(plan).walks[0].loops
    assert (outer.resident, outer.core, outer.forks) == (False, (), ())
    assert (inner.resident, inner.within, inner.core) == (True, -1, (3,))
    assert [use.name for use in plan.walks[0].uses][3] == "v"


def test_tasks_tell_how_often_loops_are_had() -> None:
    def task(n: int | None, walk: str = "w") -> dict[str, Any]:
        params = {"n": {"type": "integer", "default": n}} if n is not None else {}
        return {"outputs": ["o"], "params": params, "steps": [{"walk": walk}]}

    walk = {"body": [around("u", INNER, times="n * 2")], "edges": [["u.out", "@out.o"]]}
    counts = (3, 5, 3, None, -1, 7, 9, 11)
    plan = planned(walk, tasks={f"t{i}": task(n) for i, n in enumerate(counts)})
    outer, inner = plan.walks[0].loops
    assert (outer.usual, inner.usual) == ((6, 10, 14, 18), (3,))
    assert plan.walks[0].usual == ({"n": 3}, {"n": 5}, {}, {"n": -1})


def test_tasks_tell_what_shapes_may_follow_from() -> None:
    kinds = {"n": ("integer", 3), "word": ("string", "so"), "f": ("number", 0.5), "other": ("integer", 1)}
    params = {name: {"type": kind, "default": value} for name, (kind, value) in kinds.items()}
    tasks = {"t": {"outputs": ["o"], "params": params, "steps": [{"walk": "w"}]}}
    walk = {"body": [LOOP], "edges": [["u.out", "@out.o"]]}
    plan = planned(walk, u={"params": {"time": "=n * f", "word": "=word"}}, tasks=tasks)
    assert plan.walks[0].usual == ({"n": 3, "word": "so"},)
