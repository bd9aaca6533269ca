"""Measures planning on paper: graphs on hosts of eight GPUs that need not exist, with a replica of the graph on each
host: the processor time of a plan, and of its text."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _common import show, spread, write

from walkgraph.components import catalogue, families
from walkgraph.graph import codec
from walkgraph.placement.document import Placement, assume_hosts, decode
from walkgraph.placement.hardware import Hardware, find_hardware
from walkgraph.placement.plan import plan
from walkgraph.placement.show import render
from walkgraph.placement.sizes import find_sizes
from walkgraph.resources import bundled

GPUS = 8
LAYOUTS: dict[str, Sequence[tuple[str, int, int]]] = {
    "llm": [("*", 0, GPUS)],
    "orpheus": [("*", 0, GPUS)],
    "bagel": [
        (node, gpu, 1)
        for gpu, node in enumerate(
            ("*", "llm_cfg_text", "llm_cfg_img", "vae_encoder", "vae_decoder", "vit_encoder", "preview", "noise")
        )
    ],
}
"""Graph -> its nodes on one host, with their first GPU and the number of GPUs that divide them."""


def placed(name: str, hosts: int) -> Placement:
    groups = [
        {
            "nodes": [node],
            "ranks": [GPUS * host + gpu + shard for host in range(hosts) for shard in range(width)],
            "replicas": hosts,
            "tensor_parallel": width,
        }
        for node, gpu, width in LAYOUTS[name]
    ]
    ranks = [
        {"rank": rank, "device": f"cuda:{rank % GPUS}", "host": f"host{rank // GPUS}"} for rank in range(GPUS * hosts)
    ]
    return decode({"format": "walkgraph/placement@1", "name": "paper", "groups": groups, "ranks": ranks})


def measured(name: str, hosts: int, hardware: Hardware, rounds: int) -> dict[str, Any]:
    graph, where = codec.load(bundled("graphs")[name].read_bytes()), placed(name, hosts)
    known, sizes = catalogue(), find_sizes(families())
    planning, drawing = list[float](), list[float]()
    found, text = None, ""
    for _ in range(rounds):
        begun = time.process_time()
        made = plan(graph, where, hardware, known, sizes)
        done = time.process_time()
        found = made.plan
        assert found is not None, made.problems
        text = render(found, made.problems, made.copies, hardware=hardware)
        planning.append(done - begun)
        drawing.append(time.process_time() - done)
    return {
        "graph": name,
        "hosts": hosts,
        "ranks": len(found.ranks) if found else 0,
        "tables of Walks": len(found.walks) if found else 0,
        "plan CPU s": spread(planning)["median"],
        "text CPU s": spread(drawing)["median"],
        "text kB": len(text) / 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=[*LAYOUTS], choices=[*LAYOUTS])
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true", help="few hosts, and nothing is written")
    args = parser.parse_args()
    if args.check:
        args.hosts, args.rounds = [2], 1
    here = find_hardware()
    rows = [
        measured(name, hosts, assume_hosts(here, f"{hosts} hosts x {GPUS}x141GB"), args.rounds)
        for name in args.graphs
        for hosts in args.hosts
    ]
    show("plans", rows)
    if not args.check:
        write(args.out, "cpu", {"plans": rows})


if __name__ == "__main__":
    main()
