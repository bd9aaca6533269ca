"""A loop in a loop captured as CUDA graphs against the same loops stepped by the worker, on a GPU: equal to the bit."""

from typing import Any

import pytest
import torch

from benchmarks._runtime import InProcess, bundled_graph, placed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
GRAPH = bundled_graph("synthetic_search")
SIZES = {"horizon": 4, "ways": 6, "known": 15}
REQUESTS: list[dict[str, Any]] = [{**SIZES, "rounds": n, "seed": n, "start": n} for n in (1, 2, 6, 7, 20)]


def searched(requests: list[dict[str, Any]], *, resident: bool, capture: bool = True) -> list[list[torch.Tensor]]:
    """How far off each round was, then the way, of each request."""
    here = InProcess(GRAPH, placed(GRAPH, "cuda:0", resident=resident, kv_bytes=1 << 24), capture=capture)
    for number, params in enumerate(requests):
        here.submit(f"r{number}", "search", params)
    here.serve()
    found = [[value.cpu() for value in here.taken(f"r{number}").values] for number in range(len(requests))]
    here.engine.states.audit()
    return [sorted(values, key=lambda value: value.shape != (1,)) for values in found]


def test_a_captured_search_is_the_eager_and_the_stepped_one() -> None:
    captured = searched(REQUESTS, resident=True)
    eager = searched(REQUESTS, resident=True, capture=False)
    stepped = searched(REQUESTS, resident=False)
    for params, *found in zip(REQUESTS, captured, eager, stepped, strict=True):
        assert [len(values) for values in found] == [params["rounds"] + 1] * 3
        for one, other, third in zip(*found, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(one, third)
