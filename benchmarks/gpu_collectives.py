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

from walkgraph.collectives.base import Shard
from walkgraph.collectives.distributed import DistributedShard
from walkgraph.collectives.joining import join

SUMS, TIMES, PATIENCE = 56, 50, 60.0


def microseconds(shard: Shard, x: torch.Tensor) -> float:
    shard.sum(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(SUMS):
            y = shard.sum(y)
    took: list[float] = []
    for _ in range(TIMES):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        took.append(begun.elapsed_time(ended) * 1000 / SUMS)
    return statistics.median(took)


def member(index: int, options: argparse.Namespace, at: str, results: multiprocessing.SimpleQueue) -> None:
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    shard = join(Path(at), index, options.gpus, device)
    group = shard._group  # the same processes, by the library
    assert isinstance(group, DistributedShard)
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
