"""Events that can happen in the process while a CUDA graph is captured."""

import gc

import torch

from walkgraph.engine.device.capture import Capturer

CUDA = torch.device("cuda")


class Holder:
    """Garbage once nobody names it: it names itself."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self.graph, self.itself = graph, self


def test_a_capture_goes_on_beside_the_garbage_of_another() -> None:
    numbers = torch.zeros(8, device=CUDA)
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        numbers.add_(1)
    holders = [Holder(other)]
    del other
    launches = 0

    def work() -> None:
        nonlocal launches
        launches += 1
        if launches == 3:  # after two runs to warm up: the one that is captured
            holders.clear()
            _ = [[] for _ in range(1000)]  # past the threshold of a collection
        numbers.add_(1)

    capturer, threshold = Capturer(CUDA), gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    try:
        replay = capturer(work, "a sum")
    finally:
        gc.set_threshold(*threshold)
    assert launches == 3
    assert not capturer.failed
    replay()
    assert numbers.tolist() == [3.0] * 8
