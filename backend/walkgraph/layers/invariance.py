"""Batch invariance: whether the numbers of a row may depend on the other rows of its batch.

Batches of different sizes run fastest with different orders of their sums, so a row's last bits are those of its batch.
Under `batch_invariant()` layers choose what is right for any number of rows. Choices are made on the host where work is
launched or captured: a captured graph keeps those that it was captured with. A step that is made of such layers alone
says so (`StepSpec.invariant`); the engine gives all others one row at a time.
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
