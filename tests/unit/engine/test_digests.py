"""Digests of inputs: equal for equal values alone."""

from __future__ import annotations

import numpy as np
import torch

from tests.unit.engine.plans import call
from walkgraph.engine.calls.digests import Digests


def digest(value: object) -> bytes | None:
    one = call("node", {"port": value}, states={"cache": "main"})
    Digests().watch([one])
    return one.digest("port")


def test_equal_digests_are_of_equal_values() -> None:
    values: list[object] = [
        torch.zeros(0),
        torch.zeros(0, 4),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(1),
        torch.zeros(2, 3),
        torch.zeros(3, 2),
        torch.ones(2, 3),
        "text",
        b"text",
        1,
        1.0,
        True,
    ]
    found = [digest(value) for value in values]
    assert None not in found
    assert len(set(found)) == len(values)
    assert found == [digest(value.clone() if isinstance(value, torch.Tensor) else value) for value in values]


def test_strides_and_an_empty_array_change_nothing() -> None:
    wide = torch.arange(12.0).view(3, 4)
    assert digest(wide.t()) == digest(wide.t().contiguous())
    assert digest(torch.from_numpy(np.zeros(0, np.float32))) == digest(torch.zeros(0))


def test_a_call_without_a_cache_has_no_digests() -> None:
    one = call("node", {"port": 1})
    Digests().watch([one])
    assert one.digest("port") is None
