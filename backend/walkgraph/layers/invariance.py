"""Batch invariance: whether the numbers of a row may depend on the other rows of its batch.

Batches of different sizes run fastest with different orders of summation, so the last bits of a row depend on its
batch. Under `batch_invariant()` layers choose forms that give the same bits for any number of rows. The choice is made
on the host when work is launched or captured, and a captured graph keeps it. A step made only of such layers declares
it (`StepSpec.invariant`); the engine runs all others one row at a time.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_on = ContextVar("batch_invariant", default=False)


def is_batch_invariant() -> bool:
    """True if a row must get the same numbers as alone."""
    return _on.get()


@contextmanager
def batch_invariant(on: bool = True) -> Generator[None]:
    """Require batch invariance for work that this thread launches inside."""
    before = _on.set(on)
    try:
        yield
    finally:
        _on.reset(before)
