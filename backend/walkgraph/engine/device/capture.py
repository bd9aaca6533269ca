"""Records the CUDA graphs of one device: work is run, recorded, then replayed. Without CUDA it is just run."""

import contextlib
import gc
import logging
from collections.abc import Callable, Iterator
from typing import Protocol

import torch

_log = logging.getLogger(__name__)

Work = Callable[[], None]
"""Device work on tensors at fixed addresses; the host reads none of them."""


class Capturer:
    """Records graphs that share one memory pool, so no two of them may be replayed at the same time."""

    def __init__(self, device: torch.device, *, enabled: bool = True, priority: int = 0) -> None:
        """`priority`: that of the kernels in its graphs; -1 goes before 0."""
        self.device = device
        self.enabled = enabled and device.type == "cuda"
        self.failed: list[str] = []
        """Names of work that could not be captured, and runs eagerly."""
        self.count = 0
        self._pool = torch.cuda.graph_pool_handle() if self.enabled else None
        # One stream of its own, with this priority. Libraries keep a workspace for each stream, which graphs replayed
        # at the same time must not share, and torch's stream pool hands out the same few streams again.
        self._stream = torch.cuda.Stream(device, priority=priority) if self.enabled else None

    def __call__(self, work: Work, what: str, runs: int = 2) -> Work:
        """Capture `work` and return a function that replays it. It is run twice before, to compile and to choose
        kernels; `runs` may be 1 for work that was already captured at another batch size."""
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


class MakeCapturer(Protocol):
    def __call__(self, device: torch.device, *, enabled: bool, priority: int) -> Capturer:
        """Takes the parameters of `Capturer`. `priority`: -1 for device loops, 0 for what runs beside them."""
        ...


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Turn garbage collection off. Garbage may hold another graph, and if one is freed while this thread captures,
    CUDA refuses and ends the capture."""
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
