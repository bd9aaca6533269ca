"""Loops on the device against the same loops stepped by the worker, and against plain arithmetic."""

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks._runtime import InProcess, bundled_graph, placed
from walkgraph.placement.tables import Plan


def served(plan: Plan, task: str, requests: list[dict[str, Any]]) -> list[list[torch.Tensor]]:
    """Values of each request, all at once."""
    here = InProcess(bundled_graph("synthetic_device"), plan)
    for number, params in enumerate(requests):
        here.submit(f"r{number}", task, params)
    here.serve()
    return [here.taken(f"r{number}").values for number in range(len(requests))]


def plan(*, resident: bool = True) -> Plan:
    made = placed(bundled_graph("synthetic_device"), "cpu", resident=resident)
    assert all(loop.resident is resident for walk in made.walks for loop in walk.loops)
    return made


@pytest.mark.parametrize("resident", [True, False])
def test_counts_end_where_they_should(resident: bool) -> None:
    times = [1, 2, 17, 40, 5]
    counted = served(plan(resident=resident), "static", [{"times": n, "start": 3} for n in times])
    assert [[v.tolist() for v in one] for one in counted] == [[[3 + n]] for n in times]
    ended = served(plan(resident=resident), "until", [{"times": 30, "stop_at": n} for n in times])
    assert [[v.tolist() for v in one] for one in ended] == [[[min(n, 30)]] for n in times]


def test_a_flow_is_the_same_on_the_device_stepped_and_by_hand() -> None:
    requests = [{"times": n, "start": n, "numbers": 5 + n % 2} for n in (1, 7, 7, 20, 64)]
    fast, slow = (served(plan(resident=flag), "flow", requests) for flag in (True, False))
    for given, quick, plain in zip(requests, fast, slow, strict=True):
        x = np.full(given["numbers"], given["start"], np.float32)
        for i in range(given["times"]):
            time, step = np.float32(i / given["times"]), np.float32(1 / given["times"])
            x = x + step * (time - x)
        assert torch.equal(quick[0], torch.from_numpy(x))
        assert torch.equal(quick[0], plain[0])


def test_walks_follow_each_other() -> None:
    ((*values,),) = served(plan(), "walks", [{}])
    assert [value.tolist() for value in values] == [[1 + n] for n in range(9)]
