"""Masks of uses that are sometimes skipped, and uses that follow a device loop."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.cluster import Cluster
from tests.support.random_walks import PARAMS, RESIDENT
from tests.support.synthetic import one_walk
from walkgraph.abi.calls import Call
from walkgraph.engine.loops.spec import Items, LoopCall
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue, Param
from walkgraph.ids import Rank, RunId
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.worker.core import Core
from walkgraph.worker.events import (
    ABSENT,
    CallDone,
    Cancelled,
    Command,
    Ref,
    Release,
    Report,
    RunCall,
    RunLoop,
    Send,
    Started,
)

TIME = {"time": Param(type="number", default=0.25)}
COMPONENTS: Catalogue = {name: replace(component, params=TIME) for name, component in RESIDENT.items()}
NEEDY = {
    "test.needy": replace(c := COMPONENTS["test.mix"], inputs=(replace(c.inputs[0], optional=False), *c.inputs[1:]))
}
LOOP: dict[str, Any] = {"loop": "l", "times": "10"}
HOSTS = "fgh"
"""Nodes that follow."""


def planned(
    walk: dict[str, Any],
    ranks: Mapping[str, int] | None = None,
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    resident: bool = True,
) -> Plan:
    """Nodes are one letter each, of the body of the loop."""
    names = {use if isinstance(use, str) else use["use"] for use in walk["body"][0]["body"]}
    made = {n: {"component": "test.host" if n in HOSTS else "test.mix"} | dict((nodes or {}).get(n, {})) for n in names}
    walk = {"inputs": {"x": "scalar", "xs": "tensor", "none": "scalar"}, **walk}
    document = {"format": "walkgraph/graph@1", "name": "small", "nodes": made, "walks": {"w": walk}}
    groups = (Group(nodes=("*",), ranks=(0,)), *(Group(nodes=(n,), ranks=(r,)) for n, r in (ranks or {}).items()))
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(2))
    placement = Placement(name="p", groups=groups, ranks=devices)
    graph = codec.load(json.dumps(document).encode())
    return assemble(Assignment(graph, placement), COMPONENTS | NEEDY, resident=resident)


def started(plan: Plan, rank: int = 0, **params: Any) -> tuple[Core, list[Command]]:
    core = Core(plan, Rank(rank))
    given = PARAMS | {"seed": 0} | params
    return core, core.handle(Started(RunId("r"), one_walk(plan, "w"), given, {"x": 5, "xs": [7, 8]}))


def entered(plan: Plan, **params: Any) -> tuple[Core, LoopCall]:
    core, commands = started(plan, **params)
    (call,) = (command.call for command in commands if isinstance(command, RunLoop))
    return core, call


def runs(commands: Sequence[Command]) -> list[Call]:
    return [command.call for command in commands if isinstance(command, RunCall)]


def when(use: str, text: str) -> dict[str, str]:
    return {"use": use, "when": text}


# ── what is skipped ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "active"),
    [
        ("n > 1", None),
        ("n > 2", [False] * 10),
        ("@loop.index % 4 == 1", [i % 4 == 1 for i in range(10)]),
        ("n > 1 and @loop.l >= 8", [i >= 8 for i in range(10)]),
        ("@loop.index >= 0", None),
    ],
)
def test_conditions_are_told_iteration_by_iteration(text: str, active: list[bool] | None) -> None:
    _, call = entered(planned({"body": [LOOP | {"body": ["u", when("v", text)]}]}))
    assert [use.active for use in call.uses] == [None, tuple(active) if active else None]


def test_conditions_that_read_no_index_are_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    given = PARAMS | {"seed": 0}

    class Counting(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.append(name == "n")
            return super().__getitem__(name)

    core = Core(planned({"body": [LOOP | {"times": "1000", "body": ["u", when("v", "n > 1")]}]}), Rank(0))
    core.handle(Started(RunId("r"), one_walk(core.plan, "w"), Counting(given), {"x": 5, "xs": []}))
    assert sum(asked) < 5


def test_a_skipped_use_needs_no_parameters() -> None:
    nodes = {"v": {"params": {"time": "=1 / @loop.index"}}}
    _, call = entered(planned({"body": [LOOP | {"body": ["u", when("v", "@loop.index > 1")]}]}, nodes=nodes))
    assert call.times == 10
    assert call.uses[1].varying["time"] == (0, 0, *(1 / i for i in range(2, 10)))


@pytest.mark.parametrize(("text", "times"), [("off", 10), ("@loop.index > 3", 4), ("@loop.index < 0", 10)])
def test_a_parameter_without_a_value_ends_the_loop_where_it_is_asked_for(text: str, times: int) -> None:
    nodes = {"v": {"params": {"time": "=1 / (n - 2)"}}}
    _, call = entered(planned({"body": [LOOP | {"body": ["u", when("v", text)]}]}, nodes=nodes))
    assert call.times == times
    assert call.uses[1].params["time"] == 0.25


def test_a_condition_without_a_value_ends_the_loop_there() -> None:
    body = [when("u", "@loop.index < 9"), when("v", "1 / (3 - @loop.index) > 0")]
    core, call = entered(planned({"body": [LOOP | {"body": body}]}))
    assert call.times == 3
    assert all(use.active is None for use in call.uses)
    (report,) = core.handle(CallDone(Ref("r", 0, 0, ()), {}, iterations=3))
    assert isinstance(report, Report)
    assert isinstance(report.message, m.RankFailed)
    assert "an expression has no value" in report.message.error.message


@pytest.mark.parametrize(
    ("giver", "taker", "edges", "times"),
    [
        ("@loop.index != 4", None, [["u.out", "v.a"]], 4),
        ("@loop.index < 4", "@loop.index < 4", [["u.out", "v.a"]], 10),
        ("@loop.index < 4", "@loop.index % 3 == 0", [["u.out", "v.a"]], 6),
        (None, None, [{"from": "@in.xs", "to": "v.a", "each": True}], 2),
        (None, "@loop.index > 5", [{"from": "@in.xs", "to": "v.a", "each": True}], 6),
        (None, "@loop.index < 2", [{"from": "@in.xs", "to": "v.a", "each": True}], 10),
        (None, "@loop.index > 5", [], 6),
        (None, "@loop.index > 0", [["v2.out", "v.a"]], 10),
    ],
)
def test_a_required_port_ends_the_loop_where_it_has_nothing(
    giver: str | None, taker: str | None, edges: list[Any], times: int
) -> None:
    body: list[Any] = [{"use": n, "when": text} if text else n for n, text in (("u", giver), ("v", taker))]
    if edges and "v2.out" in edges[0]:
        body, edges = [*body, "t"], [["@in.none", "v.a"], ["t.out", "v.a"]]
    nodes = {"v": {"component": "test.needy"}}
    _, call = entered(planned({"body": [LOOP | {"body": body}], "edges": edges}, nodes=nodes))
    assert call.times == times


def test_more_slices_than_iterations_make_no_more_iterations() -> None:
    edges = [{"from": "@in.xs", "to": "u.a", "each": True}]
    nodes = {"u": {"component": "test.needy"}}
    _, call = entered(planned({"body": [LOOP | {"times": "1", "body": ["u"]}], "edges": edges}, nodes=nodes))
    assert call.times == 1


def test_what_is_made_ready_are_the_likely_iterations() -> None:
    """The core with more and more of what is skipped at times; nothing that only some iterations hand out."""
    body = ["u", when("v", "on"), when("w", "@loop.index > 1"), when("x", "on"), when("f", "n > 2"), "g"]
    nodes = {"u": {"params": {"time": "=@loop.index"}}}
    walk = {"body": [LOOP | {"body": body}], "edges": [["u.out", "f.a"], ["v.out", "g.a"]]}
    (call,) = Core(planned(walk, nodes=nodes), Rank(0)).loops()
    assert [use.active for use in call.uses] == [None, (False, True, True), (False, False, True), (False, True, True)]
    assert call.times == 3
    assert call.uses[0].varying == {"time": (0.0, 0.0, 0.0)}
    assert call.wanted == {"each u.out": (False, False, False)}
    (plain,) = Core(planned({"body": [LOOP | {"body": ["u"]}]}), Rank(0)).loops()
    assert (plain.times, plain.uses[0].active, plain.wanted) == (1, None, {})
    many = ["u", *(when(n, f"n > {i}") for i, n in enumerate("abcdexyz"))]
    (call,) = Core(planned({"body": [LOOP | {"body": many}]}), Rank(0)).loops()
    assert [sum(use.active is None or use.active[k] for use in call.uses) for k in range(call.times)] == [1, 2, 3, 9]


# ── what follows ────────────────────────────────────────────────────────────────────────────────

BEHIND = [["@in.x", "u.a"], ["u.out", "u.a"], ["u.out", "f.a"], {"from": "f.out", "to": "@out.o", "each": True}]
EVERY = {"from": "u.out", "to": "@out.own", "each": True}


@pytest.mark.parametrize(
    ("text", "wanted", "grain"),
    [
        (None, None, 1),
        ("n > 1", None, 1),
        ("n > 2", [False] * 10, 0),
        ("(@loop.index + 1) % 4 == 0", [i in (3, 7) for i in range(10)], 4),
        ("@loop.index == 5 or @loop.index == 8", [i in (5, 8) for i in range(10)], 3),
    ],
)
def test_only_values_that_are_read_are_asked_for(text: str | None, wanted: list[bool] | None, grain: int) -> None:
    walk = {"body": [LOOP | {"body": ["u", {"use": "f", "when": text} if text else "f"]}], "edges": BEHIND}
    core, call = entered(planned(walk))
    assert [use.node for use in call.spec.uses] == ["u"]
    assert (call.grain, call.offset) == (grain, 0)
    assert call.wanted == ({"each u.out": tuple(wanted)} if wanted else {})
    values = [None if wanted and not read else i for i, read in enumerate(wanted or [True] * 10)]
    fed = runs(core.handle(Items(call, 0, 10, {"each u.out": values})))
    given = next((i for i in range(10) if not wanted or wanted[i]), None)
    assert [one.inputs["a"] for one in fed] == ([] if given is None else [given])
    _, call = entered(planned(walk | {"edges": [*BEHIND, EVERY]}))
    assert (call.wanted, call.grain) == ({}, 1)


def test_a_follower_that_reads_the_iteration_before_asks_for_that() -> None:
    edges = [["u.out", "f.a"], ["u.out", "g.a"]]
    body = [when("f", "@loop.index == 4"), "u", when("g", "@loop.index == 7")]
    _, call = entered(planned({"body": [LOOP | {"body": body}], "edges": edges}))
    assert call.wanted == {"each u.out": tuple(i in (3, 7) for i in range(10))}
    assert call.grain == 4


ENDED = LOOP | {"until": "u.stop", "drop_last": True}


def test_the_last_value_is_dropped_but_for_followers_who_are_told_of_every_end() -> None:
    walk = {"body": [ENDED | {"body": ["u", "f"]}], "edges": [*BEHIND, EVERY]}
    core, call = entered(planned(walk, {"f": 1}))
    sent = core.handle(Items(call, 0, 2, {"each u.out": [*torch.tensor([3, 4])]}))
    sent += core.handle(Items(call, 2, 1, {"each u.out": [*torch.tensor([5])]}, stopped=True))
    own = [command.value.item() for command in sent if isinstance(command, Report)]
    assert own == [3, 4]
    messages = [command.message for command in sent if isinstance(command, Send)]
    assert [one.key for one in messages if isinstance(one, m.Deliver)] == [(0,), (1,), (2,)]
    verdicts = [(one.key, one.stop) for one in messages if isinstance(one, m.Until)]
    assert verdicts == [((0,), False), ((1,), False), ((2,), True)]
    assert not [
        c for c in core.handle(CallDone(Ref("r", 0, 0, ()), {}, iterations=3, reason="stop")) if isinstance(c, Send)
    ]


def test_what_is_judged_by_nothing_that_was_handed_out_is_judged_at_the_end() -> None:
    core, commands = started(planned({"body": [ENDED | {"body": ["u", "f"]}], "edges": []}, {"f": 1}))
    assert isinstance(commands[0], RunLoop)
    commands = core.handle(CallDone(Ref("r", 0, 0, ()), {}, iterations=3, reason="stop"))
    verdicts = [(c.message.key, c.message.stop) for c in commands if isinstance(c, Send)]  # type: ignore[union-attr]
    assert verdicts == [((0,), False), ((1,), False), ((2,), True)]


def test_followers_get_to_know_that_there_is_no_value() -> None:
    body = ["u", when("v", "@loop.index != 1"), "f"]
    walk = {"body": [LOOP | {"body": body}], "edges": [["v.out", "f.a"], ["u.maybe", "f.b"]]}
    core, call = entered(planned(walk, {"f": 1}))
    sent = core.handle(Items(call, 0, 2, {"each v.out": [4, None], "each u.maybe": [None, 6]}))
    found = {(c.message.edge, c.message.key): c.value for c in sent if isinstance(c, Send)}  # type: ignore[union-attr]
    assert found == {(0, (0,)): 4, (0, (1,)): ABSENT, (1, (0,)): ABSENT, (1, (1,)): 6}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("drop", [False, True])
def test_followers_go_through_all_iterations_of_a_core_that_is_skipped(drop: bool, rank: int) -> None:
    loop = LOOP | {"times": "3", "until": "u.stop", "drop_last": drop, "body": [when("u", "off"), "f"]}
    plan = planned({"body": [loop], "edges": BEHIND}, {"f": rank})
    assert plan.walks[0].loops[0].resident
    cluster = Cluster(plan, {"f": lambda call: {"out": (call.iteration, call.inputs)}})
    cluster.start("r", one_walk(plan, "w"), PARAMS, {"x": 5})
    cluster.run()
    assert cluster.done("r") == {0, 1}
    assert cluster.loops == []
    assert [value for _, value in cluster.emitted["r", "o"]] == [((i,), {}) for i in range(3)]


def test_a_walk_ends_when_its_followers_have() -> None:
    core, call = entered(planned({"body": [LOOP | {"times": "2", "body": ["u", "f"]}], "edges": BEHIND}))
    first = core.handle(Items(call, 0, 2, {"each u.out": [3, 4]}))
    assert [one.iteration for one in runs(first)] == [(0,)]
    assert core.handle(CallDone(Ref("r", 0, 0, ()), {}, iterations=2)) == []
    second = core.handle(CallDone(Ref("r", 0, 1, (0,)), {"out": 1}))
    assert [one.inputs for one in runs(second)] == [{"a": 4}]
    last = core.handle(CallDone(Ref("r", 0, 1, (1,)), {"out": 2}))
    assert [type(c.message) for c in last if isinstance(c, Report)] == [m.Emit, m.RankDone]


def test_a_run_is_left_while_its_followers_lag() -> None:
    core, call = entered(planned({"body": [LOOP | {"body": ["u", "f"]}], "edges": BEHIND}))
    core.handle(Items(call, 0, 6, {"each u.out": list(range(6))}))
    assert core.handle(Cancelled(RunId("r"))) == [Release(RunId("r"))]
    assert core.handle(Items(call, 6, 1, {"each u.out": [6]})) == []
    assert core.handle(CallDone(Ref("r", 0, 1, (0,)), {"out": 1})) == []
    assert core.handle(CallDone(Ref("r", 0, 0, ()), {}, iterations=10)) == []


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("at", [0, 4, 9, 10])
def test_a_follower_that_fails_fails_the_run(at: int, rank: int) -> None:
    plans = (planned({"body": [LOOP | {"body": ["u", "f"]}], "edges": BEHIND}, {"f": rank}, resident=r) for r in (1, 0))

    def serve(call: Call) -> dict[str, Any]:
        if call.node == "f" and call.iteration == (at,):
            raise ValueError("told to fail")
        return {"out": call.iteration[0]}

    ran: list[Cluster] = []
    for plan in plans:
        cluster = Cluster(plan, dict.fromkeys("uf", serve), seed=at)
        cluster.start("r", one_walk(plan, "w"), PARAMS, {"x": 5})
        cluster.run()
        ran.append(cluster)
    fast, slow = ran
    assert [one.message for one in fast.failures] == [one.message for one in slow.failures]
    assert len(fast.failures) == (at < 10)
    assert fast.emitted == slow.emitted


def test_a_condition_of_a_follower_that_has_no_value_fails_the_run_once_it_gets_there() -> None:
    walk = {"body": [LOOP | {"body": ["u", when("f", "1 / (3 - @loop.index) > 0")]}], "edges": BEHIND}
    core, call = entered(planned(walk))
    assert call.times == 10
    assert call.wanted == {}
    core.handle(Items(call, 0, 4, {"each u.out": list(range(4))}))
    found = [core.handle(CallDone(Ref("r", 0, 1, (i,)), {"out": i})) for i in range(3)]
    assert [isinstance(c.message, m.RankFailed) for c in found[-1] if isinstance(c, Report)] == [True]


def test_calls_are_counted_where_they_were_made() -> None:
    body = ["u", when("v", "@loop.index % 4 == 1"), when("w", "n > 2"), "f"]
    core, _ = entered(planned({"body": [LOOP | {"times": "6", "body": body}]}))
    for i in range(6):
        core.handle(CallDone(Ref("r", 0, 3, (i,)), {}))
    (report,) = core.handle(CallDone(Ref("r", 0, 0, ()), {}, busy=8.0, iterations=6))
    assert isinstance(report, Report)
    assert isinstance(report.message, m.RankDone)
    node, loop = report.message.times
    assert (node.node, node.calls, node.busy, node.walk) == ("f", 6, 0.0, "")
    assert (loop.node, loop.walk, loop.calls, loop.busy) == ("l", "w", 6, 8.0), "its time is the loop's"
    assert (loop.inside, loop.spans) == ({"u": 6, "v": 2}, False)
