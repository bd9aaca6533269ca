"""Ranks whose placement says `any`: which host a plan chooses, and what it says where there is none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.deployment import graph_named
from tests.support.placing import CATALOGUE, GIB, at, duet, hardware, placement, sizes
from walkgraph.components import catalogue, families
from walkgraph.placement.choosing.host_choice import first_fit
from walkgraph.placement.compiler.loop_decisions import spanning_ranks
from walkgraph.placement.document import ANY, Group, Placement, RankDevice
from walkgraph.placement.hardware import Hardware
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.show import render
from walkgraph.placement.sizes import find_sizes

MODEL = ("guide", "llm", "keep")
"""Nodes with four gibibytes of weights on a CPU, two on a GPU."""


def cluster(*hosts: tuple[int, ...]) -> Hardware:
    """`here`, `b`, `c` ... with so many bytes free on the CPU, and on each GPU."""
    found = [replace(hardware(*gpus, cpu=cpu), host=name) for (cpu, *gpus), name in zip(hosts, "abcde", strict=False)]
    return replace(found[0], host="here", others=tuple(found[1:]))


def chosen(found: PlanResult) -> list[str]:
    assert found.plan is not None, found.problems
    return [rank.host for rank in found.plan.ranks]


def made(where: Placement, over: Hardware) -> PlanResult:
    return plan(duet(), where, over, CATALOGUE, sizes())


def on_any(*nodes: str, rank: int = 1, **rest: Any) -> dict[str, Any]:
    return at(rank, *nodes, host=ANY, **rest)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([(32,), (64,), (64,)], ""),
        ([(2,), (16,), (64,)], "c"),
        ([(2,), (64,), (64,)], "b"),
        ([(2,), (6,), (3,)], "b"),
    ],
    ids=["the service's own", "most free memory", "the first name", "the one that has room"],
)
def test_the_services_own_host_is_taken_if_it_has_room_or_else_the_one_with_the_most(
    hosts: list[tuple[int, ...]], expected: str
) -> None:
    over = cluster(*((cpu * GIB,) for (cpu,) in hosts))
    assert chosen(made(placement(on_any(*MODEL)), over)) == ["", expected]


def test_a_host_needs_the_device_that_the_rank_names() -> None:
    over = cluster((32 * GIB,), (32 * GIB, 1 * GIB), (32 * GIB, 8 * GIB))
    found = made(placement(on_any(*MODEL), devices=("cpu", "cuda:0")), over)
    assert chosen(found) == ["", "c"]
    assert found.plan is not None
    assert [rank.unpinned for rank in found.plan.ranks] == [False, True]
    assert "rank 1  cuda:0 of c (any host)" in render(found.plan)


def test_hosts_that_cannot_be_used_are_passed_over() -> None:
    joined = replace(
        cluster((2 * GIB,), (64 * GIB,), (16 * GIB,), (9 * GIB,)),
        address="10.0.0.1",
    )
    silent, lacking, fit = joined.others
    others = (
        replace(silent, address="10.0.0.2", devices=(), faults=("host `b` doesn't answer",)),
        replace(lacking, address="10.0.0.3", lacks=("nixl",)),
        replace(fit, address="10.0.0.4"),
    )
    found = made(placement(on_any(*MODEL)), replace(joined, others=others))
    assert chosen(found) == ["", "d"]
    (problem,) = (
        one
        for one in made(placement(on_any(*MODEL)), replace(joined, others=others[:2])).problems
        if one.code == "no_host"
    )
    assert "`b` can't be used (host `b` doesn't answer)" in problem.message
    assert "`c` can't be reached by `nixl`" in problem.message


def test_shards_share_a_host() -> None:
    shards = Group(nodes=("*",), ranks=(0, 1), tensor_parallel=2, host=ANY)
    ranks = tuple(RankDevice(rank=rank, device=f"cuda:{rank}") for rank in range(2))
    over = cluster((9 * GIB, 9 * GIB), (9 * GIB, 99 * GIB), (9 * GIB, 20 * GIB, 20 * GIB))
    where = Placement(name="p", groups=(shards,), ranks=ranks)
    assert chosen(plan(graph_named("llm"), where, over, catalogue(), find_sizes(families()))) == ["c", "c"]


def test_a_loop_over_several_gpus_stays_on_one_host_with_the_rank_that_names_it() -> None:
    gpus = tuple(141 * GIB for _ in range(3))
    over = cluster((99 * GIB, 141 * GIB), (99 * GIB, *gpus[1:]), (99 * GIB, *gpus))
    groups = tuple(
        Group(nodes=(node,), ranks=(rank,), memory="90%")
        for rank, node in enumerate(("*", "llm_cfg_text", "llm_cfg_img"))
    )

    def spread(*hosts: str | None) -> PlanResult:
        ranks = tuple(RankDevice(rank=i, device=f"cuda:{i}", host=host) for i, host in enumerate(hosts))
        where = Placement(name="p", groups=groups, ranks=ranks)
        return plan(graph_named("bagel"), where, over, catalogue(), find_sizes(families()))

    everywhere = spread(ANY, ANY, ANY)
    assert chosen(everywhere) == ["c"] * 3
    assert everywhere.plan is not None
    assert spanning_ranks(everywhere.plan) == {0, 1, 2}
    assert chosen(spread("c", ANY, ANY)) == ["c"] * 3
    (problem,) = (one for one in spread(None, ANY, ANY).problems if one.code == "no_host")
    assert "ranks 1, 2, which must share one: `here` has no `cuda:1`, `cuda:2`;" in problem.message
    assert "`c`" not in problem.message


def test_a_transport_of_one_host_keeps_all_ranks_there() -> None:
    over = cluster((2 * GIB,), (10 * GIB,), (4 * GIB,))
    everything = at(0, "*", host=ANY), on_any(*MODEL)
    for transport, expected in ((None, ["", "b"]), ("shm", ["b", "b"])):
        named = placement(*everything)
        where = Placement(name="p", groups=named.groups, ranks=named.ranks, transport=transport)
        assert chosen(made(where, over)) == expected


def test_a_rank_that_says_any_itself_is_chosen_for_alone() -> None:
    over = cluster((2 * GIB,), (16 * GIB,))
    where = placement(at(1, *MODEL, host="here"))
    ranks = (where.ranks[0], where.ranks[1].model_copy(update={"host": ANY}))
    clash = made(where.model_copy(update={"ranks": ranks}), over)
    assert [(one.code, one.pointer) for one in clash.problems if one.severity == "error"] == [
        ("two_hosts", "/groups/1/host")
    ]
    plain = placement(at(1, *MODEL)).model_copy(update={"ranks": ranks})
    assert chosen(made(plain, over)) == ["", "b"]


def test_too_little_room_anywhere_says_so_where_any_is_said() -> None:
    over = cluster((2 * GIB,), (3 * GIB, 8 * GIB))
    found = made(placement(on_any(*MODEL)), over)
    assert found.plan is None
    assert found.budgeted is not None, "it is drawn"
    (problem,) = (one for one in found.problems if one.code == "no_host")
    assert problem.pointer == "/groups/1/host"
    assert "no host has room for rank 1: `here` `cpu` has 2.0 GiB free, of which rank 1 may take" in problem.message
    assert "`b` `cpu` has 3.0 GiB free, and rank 1 needs 4" in problem.message
    assert "have another host join the cluster" in problem.message
    (problem,) = (
        one
        for one in made(placement(on_any(*MODEL), devices=("cpu", "cuda:3")), over).problems
        if one.code == "no_host"
    )
    assert "`here` has no `cuda:3`; `b` has no `cuda:3`" in problem.message


def test_the_choice_is_that_of_naming_the_host() -> None:
    over = cluster((2 * GIB,), (16 * GIB,))
    free, named = made(placement(on_any(*MODEL)), over), made(placement(at(1, *MODEL, host="b")), over)
    assert free.plan is not None
    assert named.plan is not None
    ranks = tuple(msgspec.structs.replace(rank, unpinned=False) for rank in free.plan.ranks)
    assert ranks == named.plan.ranks
    assert free.plan.walks == named.plan.walks
    assert [one for one in free.problems if one.code == "several_hosts"] == []


# ── twins ───────────────────────────────────────────────────────────────────────────────────────


def naive(orders: Sequence[Sequence[str]], capacity: dict[str, int], sizes_: Sequence[int]) -> list[str] | None:
    for names in itertools.product(*orders):
        used = dict.fromkeys(capacity, 0)
        for name, size in zip(names, sizes_, strict=True):
            used[name] += size
        if all(used[name] <= capacity[name] for name in capacity):
            return list(names)
    return None


@pytest.mark.parametrize("seed", range(200))
def test_the_search_takes_the_first_choice_of_all_that_fit(seed: int) -> None:
    draw = random.Random(seed)
    capacity = {name: draw.randint(0, 8) for name in "abc"[: draw.randint(1, 3)]}
    orders = [draw.sample([*capacity], draw.randint(0, len(capacity))) for _ in range(draw.randint(0, 5))]
    needs = [draw.randint(1, 4) for _ in orders]

    def fits(names: Sequence[str]) -> bool:
        taken = sum(size for name, size in zip(names, needs, strict=False) if name == names[-1])
        return taken <= capacity[names[-1]]

    assert first_fit(orders, fits) == naive(orders, capacity, needs)


def random_placement(draw: random.Random) -> Placement:
    """Ranks 1 and 2 with parts of the model, each on `any`, or one of them on a host that it names."""
    devices = ("cpu", *(draw.choice(("cpu", "cuda:0", "cuda:1")) for _ in range(2)))
    memory = [draw.choice((None, "40%", "5GiB", "300MiB")) for _ in range(2)]
    parts = draw.sample(["llm", "guide", "keep", "mix", "paint"], 4)
    hosts = draw.choice([(ANY, ANY), (ANY, "b"), (None, ANY)])
    groups = [
        {"nodes": (*parts[2 * i : 2 * i + 2],), "ranks": (i + 1,), "memory": memory[i], "host": hosts[i]}
        for i in range(2)
    ]
    return placement(*groups, devices=devices)


@pytest.mark.parametrize("seed", range(60))
def test_a_host_is_found_wherever_naming_one_would_do(seed: int) -> None:
    draw = random.Random(seed)
    where = random_placement(draw)
    free = [1, 3, 5, 9, 17]
    over = cluster(*(tuple(draw.choice(free) * GIB for _ in range(draw.randint(1, 3))) for _ in range(3)))
    found = made(where, over)
    names = [host.host for host in over.hosts]
    ranks = sorted(where.unpinned)
    plans = [
        made(where.on(dict(zip(ranks, hosts, strict=True))), over)
        for hosts in itertools.product(names, repeat=len(ranks))
    ]
    fitting = [one for one in plans if one.plan is not None]
    if found.plan is None:
        assert not fitting or tied(where, plans), found.problems
    else:
        assert [rank.host for rank in found.plan.ranks] in [
            [rank.host for rank in one.plan.ranks] for one in fitting if one.plan
        ]


def tied(where: Placement, plans: Sequence[PlanResult]) -> bool:
    """True if the unpinned ranks exchange values from GPU to GPU wherever they share a host."""
    together = [
        one.budgeted
        for one in plans
        if one.budgeted is not None
        and len({rank.host for rank in one.budgeted.ranks if rank.rank in where.unpinned}) == 1
    ]
    return len(where.unpinned) > 1 and any(
        edge.on_device for one in together for walk in one.walks for edge in walk.edges
    )
