"""A function that tells whether the asserts of the tests' own modules are executed."""

from __future__ import annotations


def holds(value: object) -> None:
    assert value, "an assert of a helper"
