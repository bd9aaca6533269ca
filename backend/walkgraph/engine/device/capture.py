"""CUDA graphs of one device: work that is run, recorded, then replayed. Without CUDA it is just run."""

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator

import torch

_log = logging.getLogger(__name__)

Work = Callable[[], None]
"""Device work on tensors that stay where they are: nothing in it is read on the host."""


class Capturer:
    """One pool of memory for all graphs of a device, which therefore are never replayed side by side."""

    def __init__(self, device: torch.device, *, enabled: bool = True, priority: int = 0) -> None:
        """`priority`: of the kernels of its graphs; -1 goes before 0."""
        self.device = device
        self.enabled = enabled and device.type == "cuda"
        self.failed: list[str] = []
        """What could not be captured, and runs eagerly."""
        self.count = 0
        self._pool = torch.cuda.graph_pool_handle() if self.enabled else None
        # One, and of this priority: libraries keep a workspace for each stream, which graphs that are replayed side by
        # side must not share, and torch hands out the same few streams in turn.
        self._stream = torch.cuda.Stream(device, priority=priority) if self.enabled else None

    def __call__(self, work: Work, what: str, runs: int = 2) -> Work:
        """What replays `work`, after it was run twice to compile and to choose its kernels; `runs`: once is enough for
        work that was captured in another count."""
        if self._stream is None:
            return work
        stream = self._stream
        stream.wait_stream(torch.cuda.current_stream(self.device))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for _ in range(runs):
                work()
        stream.synchronize()
        try:
            with _no_collection(), torch.cuda.graph(graph, self._pool, stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError as raised:
            self.failed.append(what)
            _log.warning("%s could not be captured and runs eagerly: %s", what, str(raised).splitlines()[0])
            torch.cuda.synchronize(self.device)
            return work
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self.count += 1
        return graph.replay


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage may hold another graph. CUDA refuses to free one while this thread captures, and ends the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def bucket(n: int, buckets: tuple[int, ...]) -> int:
    """The smallest bucket that holds `n`, or the largest of all."""
    return next((size for size in buckets if size >= n), buckets[-1])
