"""Triton kernels against their naive twins: on the GPU if there is one, otherwise through Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compiling import Compiler

GPU = Path("/dev/nvidia0").exists()
if not GPU:
    # Read where a kernel is declared, which is where a test module imports it.
    os.environ["TRITON_INTERPRET"] = "1"
if importlib.util.find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def device() -> str:
    """The device on which the kernels' tensors lie."""
    return "cuda" if GPU else "cpu"


@pytest.fixture(scope="session")
def compiler() -> Iterator[Compiler]:
    """For tests of the group `kernels/compiled`, so that one process of the tests starts it."""
    found = Compiler()
    yield found
    found.close()
