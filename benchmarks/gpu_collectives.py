"""Measures sums over the GPUs of a host in captured steps: through peers' memory and by NCCL.

    python benchmarks/gpu_collectives.py [--gpus 2] [--width 3072] [--rows 1 4 16 32 64 128] --out collectives.json

A graph holds 56 sums that follow each other, as the layers of a step do; a figure is the median microseconds of one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from _common import show, write
from _timed import as_graph, elapsed

from walkgraph.collectives.base import Shard
from walkgraph.collectives.joining import join
from walkgraph.collectives.peers import PeerShard

SUMS, TIMES = 56, 50


def microseconds(shard: Shard, x: torch.Tensor) -> float:
    def sums() -> None:
        y = x
        for _ in range(SUMS):
            y = shard.sum(y)

    sums()
    torch.cuda.synchronize()
    # As many replays on each shard, so `timed`, which counts by its own clock, can't be used.
    return statistics.median(elapsed(as_graph(sums), TIMES)) * 1000 / SUMS


def member(index: int, options: argparse.Namespace, at: str, results: multiprocessing.SimpleQueue) -> None:
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    shard = join(Path(at), index, options.gpus, device)
    assert isinstance(shard, PeerShard), "these GPUs don't reach each other's memory"
    group = shard._group  # the same processes, by the library
    for rows in options.rows:
        x = torch.zeros(rows, options.width, dtype=torch.bfloat16, device=device)
        found = {"rows": rows, "bytes": x.nbytes, "peers us": microseconds(shard, x), "nccl us": microseconds(group, x)}
        if index == 0:
            results.put(found)
    shard.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--width", type=int, default=3072)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 32, 64, 128])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options, f"{folder}/group", results)
        members = [context.Process(target=member, args=(index, *arguments)) for index in range(options.gpus)]
        for one in members:
            one.start()
        found = [results.get() for _ in options.rows]
        for one in members:
            one.join()
    show("a sum in a captured step", found)
    write(options.out, "cuda", {"gpus": options.gpus, "width": options.width, "sums": found})


if __name__ == "__main__":
    main()
