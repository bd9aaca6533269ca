"""`walkgraph plan`: plan a deployment without starting anything. Needs no service and no GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import completing, documents, output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.client.shown import Host
    from walkgraph.placement.hardware import Hardware

SECTION = "Graphs"


def command(
    graph: Annotated[
        str,
        typer.Argument(help="A graph: a file, or the name of a bundled one.", autocompletion=completing.graphs_here),
    ],
    placement: Annotated[
        str | None,
        typer.Argument(
            help="A placement: a file, or a bundled name; default: all on one rank.",
            autocompletion=completing.placements_here,
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="Plan for GPUs that need not exist here: `3x141GB`, on several hosts `2 hosts x 3x141GB`, or for "
            "the hosts of the service as if nothing ran there: `cluster`.",
            metavar="COUNTxMEMORY",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Plan a graph on a placement: ranks, memory, Walks, and transfers between ranks."""
    from walkgraph.placement.routes import handed
    from walkgraph.placement.show import render
    from walkgraph.service.deployments.judging import judge
    from walkgraph.settings import Settings

    placed = documents.read(placement, "placements") if placement is not None else None
    host = None if gpus is None else _assumed(gpus)
    value = documents.read(graph, "graphs")
    known = documents.callable_from(graph, value)
    judged = judge(value, placed, (), Settings().checkpoint_roots, host, known)
    found = [*_placed("/graph", judged.graph_problems), *_placed("/placement", judged.placement_problems)]
    if as_json:
        output.as_json({"ok": judged.plan is not None, "deployable": judged.deployable, "problems": found,
                        "plan": _builtins(judged.plan)})  # fmt: skip
    elif judged.plan is None:
        output.problems(found)
    else:
        reported = (*judged.graph_problems, *judged.placement_problems)
        given = handed(judged.graph, judged.plan) if judged.graph is not None else ()
        drawn = render(judged.plan, reported, judged.copies, given, judged.hardware)
        output.line(drawn.rstrip())
    raise typer.Exit(0 if judged.plan is not None else 1)


def _assumed(text: str) -> Hardware:
    from walkgraph.errors import InvalidInput
    from walkgraph.placement.document import CLUSTER, assume_hosts
    from walkgraph.placement.hardware import find_hardware

    if text == CLUSTER:
        return _of_the_service()
    try:
        return assume_hosts(find_hardware(), text)
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from error


def _of_the_service() -> Hardware:
    """The hosts of a service, as if nothing ran there."""
    from dataclasses import replace

    from walkgraph.client import Client
    from walkgraph.placement.hardware import emptied
    from walkgraph.placement.host.host_links import HostLink
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        told = [host for host in client.hosts() if host["alive"]]
    links = {
        frozenset((host["name"], reach["host"])): HostLink(
            first=host["name"], second=reach["host"], bandwidth=reach["bandwidth"], latency=reach["latency"]
        )
        for host in told
        for reach in host["reaches"]
    }
    first, *others = map(_hardware, told)
    return emptied(replace(first, others=tuple(others), links=tuple(links.values())))


def _hardware(host: Host) -> Hardware:
    from walkgraph.placement.hardware import Device, Hardware
    from walkgraph.placement.host.topology import Link, Topology

    devices = [
        Device(name=one["name"], total=one["total"], free=one["free"], label=one["title"]) for one in host["devices"]
    ]
    links = [
        Link(first=one["first"], second=one["second"], kind=one["kind"], peers=one["peers"]) for one in host["links"]
    ]
    return Hardware(
        host=host["name"],
        address=host["address"],
        cores=host["cores"],
        shm=0,
        devices=tuple(devices),
        topology=Topology(links=tuple(links)),
    )


def _placed(prefix: str, problems: Any) -> list[dict[str, Any]]:
    return [{**vars(problem), "pointer": prefix + problem.pointer} for problem in problems]


def _builtins(plan: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(plan, str_keys=True)
