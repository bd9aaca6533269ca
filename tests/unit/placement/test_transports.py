"""The transports of a plan: the cheapest for each edge, or the one that the placement names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.placing import CATALOGUE, GIB, at, duet, hardware, placement, sizes
from walkgraph.ids import Rank
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.transports import TransportDeclaration, Transports, arenas, declared_transports

DECLARED: Transports = {
    "passed": TransportDeclaration(reach="process", cost=0),
    "shared": TransportDeclaration(reach="host", cost=400),
    "device": TransportDeclaration(reach="host", cost=200, on_device=True, arena_bytes=1 << 20, confirmed=True),
    "wired": TransportDeclaration(reach="cluster", cost=1500),
    "absent": TransportDeclaration(reach="cluster", cost=1600, extra="more", installed=False),
}


def planned(transport: str | None, *devices: str) -> PlanResult:
    where = placement(at(1, "guide", "llm"), devices=devices).model_copy(update={"transport": transport})
    return plan(duet(), where, hardware(100 * GIB, 100 * GIB), CATALOGUE, sizes(), transports=DECLARED)


def used(found: PlanResult) -> set[str]:
    assert found.plan is not None, found.problems
    return {edge.transport for walk in found.plan.walks for edge in walk.edges} & DECLARED.keys()


@pytest.mark.parametrize(
    ("transport", "devices", "expected"),
    [
        (None, ("cpu", "cpu"), {"shared"}),
        (None, ("cuda:0", "cuda:1"), {"device"}),
        ("wired", ("cpu", "cpu"), {"wired"}),
        ("wired", ("cuda:0", "cuda:1"), {"wired"}),
        ("shared", ("cuda:0", "cuda:1"), {"shared"}),
    ],
)
def test_a_plan_has_the_transport_that_is_named(
    transport: str | None, devices: tuple[str, ...], expected: set[str]
) -> None:
    found = planned(transport, *devices)
    assert used(found) == expected
    assert found.plan is not None
    assert not any(edge.on_device for walk in found.plan.walks for edge in walk.edges) or transport is None
    if transport is not None:
        assert arenas(found.plan, Rank(0), 64, DECLARED) == dict.fromkeys(expected, 64), "and no other for what is left"


ON_TWO_HOSTS = [
    ((("", "cpu"), ("", "cpu"), ("b", "cpu")), [{"shared", "wired"}, {"shared", "wired"}, {"wired"}]),
    ((("", "cpu"), ("b", "cpu")), [{"wired"}, {"wired"}]),
    (
        (("", "cuda:0"), ("", "cuda:1"), ("b", "cuda:0")),
        [{"shared", "device", "wired"}, {"shared", "device", "wired"}, {"wired"}],
    ),
    ((("b", "cpu"), ("b", "cpu")), [{"shared"}, {"shared"}]),
]


@pytest.mark.parametrize(("places", "expected"), ON_TWO_HOSTS)
@pytest.mark.parametrize("everything", [None, "wired"])
def test_a_rank_opens_the_transports_that_reach_its_peers(
    places: tuple[tuple[str, str], ...], expected: list[set[str]], everything: str | None
) -> None:
    nodes = ("llm", "guide"), ("mix",)
    groups = [
        {"nodes": ["*"], "ranks": [0], "host": places[0][0] or "here"},
        *(at(rank, *nodes[rank - 1], host=places[rank][0] or "here") for rank in range(1, len(places))),
    ]
    where = placement(*groups, devices=tuple(device for _, device in places))
    where = where.model_copy(update={"transport": everything})
    both = hardware(100 * GIB, 100 * GIB)
    found = plan(
        duet(), where, replace(both, others=(replace(both, host="b"),)), CATALOGUE, sizes(), transports=DECLARED
    )
    assert found.plan is not None, found.problems
    opened = [arenas(found.plan, rank.rank, 64, DECLARED).keys() for rank in found.plan.ranks]
    assert opened == (expected if everything is None else [{"wired"}] * len(places))


@pytest.mark.parametrize(
    ("transport", "code", "said"),
    [
        ("wirde", "unknown_transport", "did you mean `wired`"),
        ("device", "unsupported", "name one of `shared`, `wired`"),
        ("passed", "unsupported", "name one of `shared`, `wired`"),
        ("absent", "not_installed", "pip install 'walkgraph[more]'"),
    ],
)
def test_one_that_cannot_carry_everything_is_refused(transport: str, code: str, said: str) -> None:
    found = planned(transport, "cpu", "cpu")
    assert found.plan is None
    (problem,) = (one for one in found.problems if one.severity == "error")
    assert (problem.code, problem.pointer) == (code, "/transport")
    assert said in problem.message


def test_nothing_within_a_host_goes_over_a_network_unless_asked() -> None:
    declared = declared_transports()
    cheapest = {one.reach: min(o.cost for o in declared.values() if o.reach == one.reach) for one in declared.values()}
    assert cheapest["process"] < cheapest["host"] < cheapest["cluster"]
