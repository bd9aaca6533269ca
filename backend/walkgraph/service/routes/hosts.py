"""The hosts that can be deployed to, and the ranks that run there."""

from collections.abc import Iterable, Iterator

from fastapi import APIRouter

from walkgraph.placement.hardware import Hardware, find_hardware, reserve
from walkgraph.placement.host.host_links import HostLink
from walkgraph.placement.host.named import lacking
from walkgraph.placement.transports import declared_transports
from walkgraph.service.deployments.judging import devices_shown, links_shown, off_loop
from walkgraph.service.deployments.versions import Version
from walkgraph.service.deps import ServicesDep
from walkgraph.service.http.body import StrictRoute
from walkgraph.service.schemas.answers import Answer
from walkgraph.wire.answers import hosts as answers

router = APIRouter(prefix="/api/v1/hosts", tags=["hosts"], route_class=StrictRoute)


@router.get("")
async def list_all(services: ServicesDep) -> list[Answer[answers.Host]]:
    """The hosts of the service's cluster, or its machine alone: their devices, with the memory that running deployments
    leave free, and the ranks that run there. The service's own host is first; hosts that are gone come last."""
    hardware = await services.hosts() or await off_loop(find_hardware)
    ranks = dict[str, list[answers.HostRank]]()
    for host, rank in _ranks(services.deployments.versions()):
        ranks.setdefault(host or hardware.host, []).append(rank)
    known = [
        _host(hardware, one, ranks.pop(one.host, [])) for one in reserve(hardware, services.deployments.plans()).hosts
    ]
    return [*known, *(_gone(name, ranks[name]) for name in sorted(ranks))]


def _ranks(versions: Iterable[Version]) -> Iterator[tuple[str, answers.HostRank]]:
    """Ranks of living versions, each with its host as plans name it."""
    for version in versions:
        if version.plan is not None and version.holds_memory:
            states = {one.rank: one.state for one in version.status.ranks}
            for rank in version.plan.ranks:
                yield (
                    rank.host,
                    answers.HostRank(
                        deployment=version.id,
                        rank=rank.rank,
                        device=rank.device,
                        state=states.get(rank.rank, "starting"),
                    ),
                )


def _host(first: Hardware, one: Hardware, ranks: list[answers.HostRank]) -> answers.Host:
    return answers.Host(
        name=one.host,
        address=one.address,
        here=one.host == first.host,
        alive=bool(one.devices),
        problems=[
            *one.faults,
            *(text for _, text in lacking(one, declared_transports())),
        ],
        cores=one.cores,
        devices=devices_shown(one),
        links=links_shown(one),
        reaches=[*_reaches(first.links, one.host)],
        ranks=ranks,
    )


def _reaches(links: Iterable[HostLink], host: str) -> Iterator[answers.HostReach]:
    for link in links:
        if host in (link.first, link.second):
            other = link.second if link.first == host else link.first
            yield answers.HostReach(host=other, bandwidth=link.bandwidth, latency=link.latency)


def _gone(name: str, ranks: list[answers.HostRank]) -> answers.Host:
    return answers.Host(
        name=name,
        address="",
        here=False,
        alive=False,
        problems=[f"host `{name}` is not in the cluster now; start it"],
        cores=0,
        devices=[],
        links=[],
        reaches=[],
        ranks=ranks,
    )
