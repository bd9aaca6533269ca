"""Loops captured as CUDA graphs against the same loops stepped by the worker, on a GPU: equal to the bit."""

from typing import Any

import pytest
import torch

from benchmarks._runtime import InProcess, bundled_graph, placed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
GRAPH = bundled_graph("synthetic_device")
REQUESTS = [{"times": n, "start": n, "numbers": 4096 + n % 2} for n in (1, 7, 7, 20, 64, 300)]


def served(task: str, requests: list[dict[str, Any]], *, resident: bool, capture: bool = True) -> list[torch.Tensor]:
    here = InProcess(GRAPH, placed(GRAPH, "cuda:0", resident=resident), capture=capture)
    for number, params in enumerate(requests):
        here.submit(f"r{number}", task, params)
    here.serve()
    return [here.taken(f"r{number}").values[0].cpu() for number in range(len(requests))]


def test_a_captured_flow_is_the_eager_and_the_stepped_one() -> None:
    captured = served("flow", REQUESTS, resident=True)
    eager = served("flow", REQUESTS, resident=True, capture=False)
    stepped = served("flow", REQUESTS, resident=False)
    for one, other, third in zip(captured, eager, stepped, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)


@pytest.mark.parametrize("task", ["static", "until"])
def test_captured_counts_end_where_they_should(task: str) -> None:
    asked = [{"times": 500 if task == "until" else n, "stop_at": n} for n in (1, 2, 63, 64, 65, 400)]
    assert [one.tolist() for one in served(task, asked, resident=True)] == [[n] for n in (1, 2, 63, 64, 65, 400)]
