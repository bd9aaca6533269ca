"""`walkgraph hardware`: list the devices of this machine, with their NUMA nodes and the ways between GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.placement.hardware import Hardware


def command(as_json: Json = False) -> None:
    """List devices with their memory and NUMA nodes, and how GPUs reach each other."""
    from walkgraph.placement.hardware import find_hardware

    found = find_hardware()
    if as_json:
        output.as_json(_plain(found))
    else:
        _print(found)


def _plain(found: Hardware) -> dict[str, Any]:
    topology = found.topology
    nodes = [{"number": n.number, "cpus": sorted(n.cpus), "memory": n.memory} for n in topology.nodes]
    devices = [
        {"name": d.name, "label": d.label, "total": d.total, "free": d.free, "numa": topology.node(d.name)}
        for d in found.devices
    ]
    return {"host": found.host, "devices": devices, "nodes": nodes, "links": [vars(link) for link in topology.links]}


def _print(found: Hardware) -> None:
    from walkgraph.placement.capacity.budget import show_bytes
    from walkgraph.placement.show import link_words

    topology = found.topology
    several = len(topology.nodes) > 1
    numa = {device.name: topology.node(device.name) for device in found.devices}
    output.table(
        ("DEVICE", "MEMORY", "FREE", *(("NUMA",) if several else ()), ""),
        [
            (
                device.name,
                show_bytes(device.total),
                show_bytes(device.free),
                *(("" if numa[device.name] is None else numa[device.name],) if several else ()),
                device.label,
            )
            for device in found.devices
        ],
    )
    for node in topology.nodes if several else ():
        output.line(f"NUMA node {node.number}: {len(node.cpus)} processors, {show_bytes(node.memory)}")
    for link in topology.links:
        output.line(f"{link.first} and {link.second} {link_words(link)}")
