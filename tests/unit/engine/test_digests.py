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


class NumberWithALongNameOfItsOwn(int):
    """Its name has more bytes than a digest has for a kind."""


WIDE = type("W\u00f6rter" * 3, (str,), {"__slots__": ()})
"""Its name has more bytes than characters."""


class NumberWithALongNameOfAnother(int):
    """Differs in its name alone."""


def deep(levels: int) -> list[object]:
    found: list[object] = []
    for _ in range(levels):
        found = [found]
    return found


def test_no_value_of_a_node_is_too_much_for_a_digest() -> None:
    values = [
        NumberWithALongNameOfItsOwn(3),
        NumberWithALongNameOfAnother(3),
        3,
        3.0,
        WIDE("3"),
        "3",
        "\ud800",
    ]
    values += [10**5000, -(10**5000), [10**5000], (3,), [3], [[3]], {"a": 3}, {"a": [3]}]
    found = [digest(value) for value in values]
    assert None not in found
    assert len(set(found)) == len(values)
    assert digest(deep(20)) not in (None, digest(deep(21)))
    assert digest(deep(100_000)) is None
    assert digest({"a": 1, 2: 3}) is None
    assert digest({("a", 1): 3, ("a", None): 2}) is None


def test_strides_and_an_empty_array_change_nothing() -> None:
    wide = torch.arange(12.0).view(3, 4)
    assert digest(wide.t()) == digest(wide.t().contiguous())
    assert digest(torch.from_numpy(np.zeros(0, np.float32))) == digest(torch.zeros(0))


def test_a_call_without_a_cache_has_no_digests() -> None:
    one = call("node", {"port": 1})
    Digests().watch([one])
    assert one.digest("port") is None
