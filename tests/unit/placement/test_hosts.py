"""Placements that name hosts: which rank is where, what goes between them, and what can't be."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.placing import CATALOGUE, GIB, at, duet, hardware, placement, planned, sizes
from walkgraph.errors import InvalidInput
from walkgraph.placement.document import Placement, assume_hosts
from walkgraph.placement.hardware import Device, Hardware, reserve
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.show import render, show_time
from walkgraph.placement.transports import declared_transports

APART = [name for name, one in declared_transports().items() if one.reach == "cluster"]


def cluster(*free: int, cpu: int = 32 * GIB) -> Hardware:
    """`here`, without GPUs, and one host for each figure, with a GPU that has so many bytes free."""
    others = tuple(replace(hardware(size, cpu=cpu), host=f"far{i}") for i, size in enumerate(free))
    return replace(hardware(cpu=cpu), others=others)


def spread(*groups: dict[str, Any], devices: tuple[str, ...] = ("cpu", "cpu"), **fields: Any) -> PlanResult:
    where = placement(*groups, devices=devices).model_copy(update=fields)
    return plan(duet(), where, cluster(32 * GIB, 1 * GIB), CATALOGUE, sizes())


def edges(found: PlanResult) -> set[str]:
    assert found.plan is not None, found.problems
    named = declared_transports()
    return {edge.transport for walk in found.plan.walks for edge in walk.edges} & named.keys()


def codes(found: PlanResult) -> list[tuple[str, str]]:
    return [(problem.code, problem.pointer) for problem in found.problems]


def test_values_and_states_between_hosts_go_over_a_network() -> None:
    found = spread(at(1, "guide", "voice", host="far0"), devices=("cpu", "cuda:0"))
    assert edges(found) == set(APART)
    assert found.plan is not None
    assert [(rank.host, rank.device) for rank in found.plan.ranks] == [("", "cpu"), ("far0", "cuda:0")]
    assert {copy.transport for copy in found.copies} == set(APART)
    assert ("several_hosts", "/groups/1/host") in codes(found)
    assert not found.deployable


def test_hosts_of_a_cluster_are_deployed_to() -> None:
    alone = cluster(32 * GIB)
    joined = replace(alone, address="10.0.0.1", others=(replace(alone.others[0], address="10.0.0.2"),))
    for hardware_, deployed in ((alone, False), (joined, True), (assume_hosts(joined, "2 hosts"), False)):
        name = hardware_.others[0].host
        found = plan(duet(), placement(at(1, "llm", host=name), devices=("cpu", "cpu")), hardware_, CATALOGUE, sizes())
        assert found.plan is not None
        assert found.deployable is deployed
        assert (("several_hosts", "/groups/1/host") in codes(found)) is not deployed
    for hardware_, said in ((alone, "WALKGRAPH_BACKEND=ray"), (joined, "have it join the cluster")):
        lost = placement(at(1, "llm", host="lost"), devices=("cpu", "cpu"))
        problem, *_ = plan(duet(), lost, hardware_, CATALOGUE, sizes()).problems
        assert problem.code == "unknown_host"
        assert said in problem.message


def test_plans_hold_memory_on_their_own_hosts() -> None:
    made = spread(at(1, "guide", "llm", host="far0", memory="20GiB"), devices=("cpu", "cpu")).plan
    assert made is not None
    left = reserve(cluster(32 * GIB, 1 * GIB), [made])
    held = [sum(size for _, size in rank.budget) for rank in made.ranks]
    free = [host.devices[0].free for host in left.hosts]
    assert held[1]
    assert free == [max(0, 32 * GIB - one) for one in (*held, 0)]


def test_ranks_of_one_host_share_its_memory_wherever_it_is() -> None:
    both = at(1, "guide", "llm", host="far0"), at(0, "*", host="far0")
    assert not edges(spread(*both)) & set(APART)
    named = spread(at(1, "guide", "llm", host="here"))
    assert edges(named) == edges(planned(at(1, "guide", "llm")))
    assert named.deployable


def test_gpus_of_two_hosts_are_not_joined() -> None:
    found = plan(
        duet(),
        placement(at(1, "guide", "llm", host="b"), devices=("cuda:0", "cuda:0")),
        replace(hardware(64 * GIB), others=(replace(hardware(64 * GIB), host="b"),)),
        CATALOGUE,
        sizes(),
    )
    assert edges(found) == set(APART)
    assert found.plan is not None
    assert not any(edge.on_device for walk in found.plan.walks for edge in walk.edges)
    assert not any(rank.arenas for rank in found.plan.ranks)


def test_memory_is_that_of_the_ranks_own_host() -> None:
    small = spread(at(1, "guide", "llm", host="far1"), devices=("cpu", "cuda:0"))
    (problem,) = (one for one in small.problems if one.severity == "error")
    assert (problem.code, problem.pointer) == ("does_not_fit", "/ranks/1")
    assert "`cuda:0` of host `far1`" in problem.message
    both = at(1, "guide", "llm", host="far0", memory="20GiB"), at(2, "mix", host="far1", memory="200MiB")
    assert spread(*both, devices=("cpu", "cuda:0", "cuda:0")).capacities[both[0]["ranks"][0]] == 20 * GIB


@pytest.mark.parametrize(
    ("groups", "devices", "code", "pointer", "said"),
    [
        ([at(1, "llm", host="nowhere")], ("cpu", "cpu"), "unknown_host", "/groups/1/host", "`here`, `far0`, `far1`"),
        ([at(1, "llm", host="far0")], ("cpu", "cuda:3"), "no_device", "/ranks/1/device", "on host `far0`; use one of"),
        (
            [at(1, "llm", host="far0"), at(1, "guide", host="far1")],
            ("cpu", "cpu"),
            "two_hosts",
            "/groups/2/host",
            "rank 1 is on host `far0` by another group",
        ),
    ],
)
def test_hosts_that_cannot_be_say_what_to_do(
    groups: list[dict[str, Any]], devices: tuple[str, ...], code: str, pointer: str, said: str
) -> None:
    found = spread(*groups, devices=devices)
    assert found.plan is None
    (problem,) = (one for one in found.problems if one.severity == "error" and one.code == code)
    assert problem.pointer == pointer
    assert said in problem.message


def located(place: Placement, **hosts: str) -> Placement:
    """The placement with ranks that name their own hosts: `r1="far0"`."""
    ranks = [entry.model_copy(update={"host": hosts.get(f"r{entry.rank}")}) for entry in place.ranks]
    return place.model_copy(update={"ranks": tuple(ranks)})


def copies_of(*hosts: str) -> PlanResult:
    """A plan of two replicas on `cuda:0` of hosts."""
    where = placement(at(0, "*", ranks=(0, 1), replicas=2), devices=("cuda:0", "cuda:0"))
    named = located(where, r0=hosts[0], r1=hosts[1])
    return plan(duet(), named, cluster(32 * GIB, 32 * GIB), CATALOGUE, sizes())


def test_ranks_of_one_group_are_on_the_hosts_that_they_name() -> None:
    found = copies_of("far0", "far1")
    assert found.plan is not None, found.problems
    assert [rank.host for rank in found.plan.ranks] == ["far0", "far1"]
    assert "shared_device" not in {problem.code for problem in found.problems}
    assert ("shared_device", "/groups/1/ranks/1") in codes(copies_of("far0", "far0"))
    assert ("unknown_host", "/ranks/1/host") in codes(copies_of("far0", "nowhere"))
    assert ("several_hosts", "/ranks/0/host") in codes(found)


def test_a_host_that_is_assumed_is_told_once() -> None:
    assert [at for code, at in codes(copies_of("far0", "far0")) if code == "several_hosts"] == ["/ranks/0/host"]
    both = codes(copies_of("far0", "far1"))
    assert [at for code, at in both if code == "several_hosts"] == ["/ranks/0/host", "/ranks/1/host"]
    lost = codes(copies_of("gone", "gone"))
    assert [at for code, at in lost if code == "unknown_host"] == ["/ranks/0/host", "/ranks/1/host"]


def test_a_rank_that_names_its_host_goes_before_its_groups() -> None:
    where = located(placement(at(1, "llm", host="far0"), devices=("cpu", "cpu")), r1="far1")
    found = plan(duet(), where, cluster(GIB, GIB), CATALOGUE, sizes())
    (problem,) = (one for one in found.problems if one.code == "two_hosts")
    assert (problem.pointer, problem.severity) == ("/groups/1/host", "error")
    assert "rank 1 is on host `far1` by itself" in problem.message


@pytest.mark.parametrize(("hosts", "refused"), [(("far0", "far0"), False), (("far0", "far1"), True)])
def test_shards_stay_on_one_host(hosts: tuple[str, str], refused: bool) -> None:
    where = placement(at(0, "*", ranks=(0, 1), tensor_parallel=2), devices=("cuda:0", "cuda:1"))
    both = replace(hardware(32 * GIB, 32 * GIB), others=())
    among = replace(hardware(), others=tuple(replace(both, host=name) for name in ("far0", "far1")))
    found = plan(duet(), located(where, r0=hosts[0], r1=hosts[1]), among, CATALOGUE, sizes())
    told = [problem.message for problem in found.problems if problem.pointer == "/groups/1/ranks/1"]
    assert ([*told] == []) is not refused, told
    assert all("across the hosts `far0` and `far1`" in message for message in told)


def joined(**far: Any) -> Hardware:
    """A cluster of `here` and `far0`, which is changed like this."""
    alone = cluster(32 * GIB)
    others = (replace(alone.others[0], address="10.0.0.2", **far),)
    return replace(alone, address="10.0.0.1", others=others)


def unfit(hardware_: Hardware, *groups: dict[str, Any]) -> list[tuple[str, str]]:
    """(code, message) of what keeps a plan from being deployed. It can be planned all the same."""
    found = plan(duet(), placement(*groups, devices=("cpu", "cpu")), hardware_, CATALOGUE, sizes())
    assert found.plan is not None
    told = [problem for problem in found.problems if problem.code in {"unfit_host", "not_installed"}]
    assert found.deployable is not bool(told)
    assert {problem.pointer for problem in told} <= {"/groups/1/host", "/ranks"}
    return [(problem.code, problem.message) for problem in told]


def test_hosts_that_are_not_fit_are_planned_for_but_not_deployed_to() -> None:
    there = at(1, "llm", "guide", "voice", host="far0")
    assert unfit(joined(), there) == []
    assert unfit(joined(faults=("its clock is off; mend it",)), there) == [("unfit_host", "its clock is off; mend it")]
    assert unfit(joined(faults=("its clock is off; mend it",)), at(1, "llm", "guide", "voice")) == []


def test_a_host_without_the_transport_between_hosts_says_what_to_install() -> None:
    lacks = joined(lacks=(APART[0], "shm"))
    ((code, message),) = unfit(lacks, at(1, "llm", "guide", "voice", host="far0"))
    assert (code, message.startswith(f"host `far0` lacks `{APART[0]}`")) == ("not_installed", True)
    assert "pip install 'walkgraph[cluster]'" in message
    assert unfit(replace(joined(), lacks=(APART[0],)), at(1, "llm", "guide", "voice", host="far0"))[0][0] == code
    assert unfit(lacks, at(0, "*", host="far0"), at(1, "llm", "guide", "voice", host="far0")) == []


def test_a_host_that_does_not_answer_is_not_planned_for() -> None:
    silent = joined(devices=(), faults=("it doesn't answer; look there",))
    found = plan(duet(), placement(at(1, "llm", host="far0"), devices=("cpu", "cpu")), silent, CATALOGUE, sizes())
    assert found.plan is None
    (problem,) = (one for one in found.problems if one.severity == "error")
    assert (problem.code, problem.pointer, problem.message) == (
        "silent_host",
        "/groups/1/host",
        "it doesn't answer; look there",
    )


def test_a_transport_that_is_named_must_reach_the_other_host() -> None:
    near = next(name for name, one in declared_transports().items() if one.reach == "host" and not one.on_device)
    found = spread(at(1, "llm", host="far0"), transport=near)
    assert ("unsupported", "/transport") in codes(found)
    assert found.plan is None
    for host in (None, "here"):
        assert edges(spread(at(1, "llm", host=host), transport=near)) == {near}


def test_the_drawing_says_what_goes_between_hosts() -> None:
    found = spread(at(1, "guide", "voice", host="far0"), devices=("cpu", "cuda:0"))
    assert found.plan is not None
    drawn = render(found.plan, found.problems, found.copies)
    assert "rank 1  cuda:0 of far0  " in drawn
    section = drawn.partition("between hosts\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  (\S+ → \S+)  \d+ edges?, (\S+)$", section, re.MULTILINE) == [
        ("far0 → here", APART[0]),
        ("here → far0", "inline"),
        ("here → far0", APART[0]),
    ]
    assert re.search(r"^  here → far0  state main  0>1  in prefill  320 KiB, largest 2.1 MiB", section, re.MULTILINE)
    alone = planned(at(1, "guide", "voice"))
    assert alone.plan is not None
    assert "between hosts" not in render(alone.plan, alone.problems, alone.copies)


def test_the_drawing_says_what_links_between_hosts_cost() -> None:
    found = spread(at(1, "guide", "voice", host="far0"), devices=("cpu", "cuda:0"))
    assert found.plan is not None
    link = HostLink(first="far0", second="here", bandwidth=GIB, latency=0.0004)
    drawn = render(found.plan, found.problems, found.copies, hardware=replace(cluster(GIB), links=(link,)))
    section = drawn.partition("between hosts\n")[2].partition("\n\n")[0]
    assert re.findall(r"^  here → far0  \d+ edges?, (\S+), each (.*) or more$", section, re.MULTILINE) == [
        ("inline", "0.40 ms"),
        (APART[0], "0.40 ms"),
    ]
    copied = next(copy for copy in found.copies if (copy.source, copy.target) == (0, 1))
    time = f"{1000 * (0.0004 + copied.bytes / GIB):.2f} ms"
    assert re.search(rf"^  here → far0  state main .*, {time}$", section, re.MULTILINE)
    other = replace(link, second="far1")
    assert " or more" not in render(found.plan, hardware=replace(cluster(GIB), links=(other,)))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.00021, "0.21 ms"), (0.0000134, "0.013 ms"), (0.0123, "12.3 ms"), (0.25, "250 ms"), (3, "3.0 s")],
)
def test_times_have_two_figures_at_least(seconds: float, shown: str) -> None:
    assert show_time(seconds) == shown


def test_hosts_can_be_assumed() -> None:
    three = assume_hosts(hardware(7), "3 hosts x 2x80GB")
    assert [host.host for host in three.hosts] == ["host0", "host1", "host2"]
    assert {host.devices[1:] for host in three.hosts} == {
        tuple(
            Device(name=f"cuda:{i}", total=80 * 10**9, free=80 * 10**9, label="assumed", assumed=True) for i in (0, 1)
        )
    }
    assert all(not host.others for host in three.others)
    alike = assume_hosts(hardware(7), "2 hosts")
    assert [host.devices for host in alike.hosts] == [hardware(7).devices] * 2
    assert assume_hosts(hardware(), "3x141GB").others == ()


@pytest.mark.parametrize("text", ["0 hosts", "999 hosts x 1x1GB", "2 hosts x ", "2 hosts x 2", "2 host x 1x1GB"])
def test_hosts_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="3x141GB"):
        assume_hosts(hardware(), text)
