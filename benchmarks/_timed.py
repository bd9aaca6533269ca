"""Milliseconds of work on the GPU by CUDA events, launched or as one CUDA graph; on a CPU by the clock."""

import statistics
import time
from collections.abc import Callable

import torch

Work = Callable[[], object]


def timed(work: Work, *, captured: bool = True, seconds: float = 1.0) -> float:
    """The median of a replay, or a call, over about so many seconds."""
    if not torch.cuda.is_available():
        began = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - began)
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    replay = as_graph(work) if captured else work
    replay()
    once = elapsed(replay, 1)[0]
    return statistics.median(elapsed(replay, max(5, min(50, int(1e3 * seconds / max(once, 0.01))))))


def as_graph(work: Work) -> Work:
    """A function that replays it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def elapsed(work: Work, times: int) -> list[float]:
    """Milliseconds of each call."""
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for start, end in marks:
        start.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in marks]
