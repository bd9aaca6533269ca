"""Groups of shards in tests: threads of this process, or processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from walkgraph.collectives.base import Shard
from walkgraph.collectives.host import HostShard
from walkgraph.errors import GroupBroken, WalkgraphError

T = TypeVar("T")
LONGEST = 120.0
"""Seconds for what takes a few on an idle machine."""


@dataclass(frozen=True)
class Imagined:
    """A shard of a group that isn't there: a sum is `times` its part, as if others had as much."""

    index: int = 0
    count: int = 2
    times: int = 1

    def sum(self, x: Tensor) -> Tensor:
        return x * self.times

    def gather(self, x: Tensor, dim: int = -1) -> Tensor:
        return torch.cat([x] * self.count, dim)

    def close(self) -> None:
        pass


def in_threads(at: Path, count: int, work: Callable[[Shard], T], **options: Any) -> list[T]:
    """Return the result of `work` on each shard of a group."""

    def one(index: int) -> T:
        shard = HostShard(at, index, count, **options)
        try:
            return work(shard)
        finally:
            shard.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def in_processes(count: int, work: Callable[..., Any], *arguments: Any, asked: Sequence[int] = ()) -> list[Any]:
    """Return the results of `work(index, count, *arguments)` in all processes, or in those `asked`: plain values, None
    for a process that died, and the class's name for an error of ours. All have ended when it returns."""
    context = get_context("forkserver")
    # The processes are forked from one that has imported what they need.
    context.set_forkserver_preload([work.__module__])
    pipes, processes = [], []
    for index in range(count):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_worked, args=(theirs, work, index, count, *arguments), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        return [_result(pipes[index]) for index in asked or range(count)]
    finally:
        for process in processes:
            process.kill()
            process.join()


def _worked(pipe: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    torch.set_num_threads(1)
    try:
        result = work(*arguments)
    except (WalkgraphError, GroupBroken) as error:
        result = type(error).__name__
    pipe.send(result)


def _result(pipe: Connection) -> Any:
    if not pipe.poll(LONGEST):
        raise TimeoutError("a shard doesn't answer")
    try:
        return pipe.recv()
    except EOFError:
        return None
