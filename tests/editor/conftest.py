"""Pages run in this process, and Streamlit leaves each script in the place of the main module."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """The main module is itself again after a page: a process that a later test starts imports it."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main
