"""All tests in processes that are optimized, as `python -O` is: the product's asserts are gone there.

Those of the tests are not: pytest rewrites the asserts of every module below `tests` into plain statements.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts import gate
from tests.safety.plugin import Figure, Scale
from tests.support import asserting

PACKAGES = ("backend/walkgraph", "editor/walkgraph_editor")
SOME = (
    "tests/safety/test_optimized.py::test_asserts_of_tests_are_executed",
    "tests/unit/conductor/test_core.py",
    "tests/unit/wire/test_codec.py",
)
"""Without torch, whose bytecode for optimized processes takes half a minute to make."""
TIERS = "unit or contract or system"
OPTIMIZED = {"PYTHONOPTIMIZE": "1"}
"""Processes that are started by optimized ones are so too."""


@pytest.mark.safety("S14")
@pytest.mark.timeout(0)
def test_tests_pass_where_python_is_optimized(repository: Path, scale: Scale, figure: Figure) -> None:
    together = ("-n", str(os.cpu_count()), "--dist", "loadgroup", "--no-loadscope-reorder")
    chosen = scale(SOME, (*together, "-m", TIERS, "--deselect", f"{__file__}::{_itself.__name__}", "tests"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen]
    environment = {**os.environ, **OPTIMIZED}
    ran = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]
    passed = re.search(r"(\d+) passed", ran.stdout.rpartition("\n")[0].rpartition("\n")[2])
    assert passed, ran.stdout[-300:]
    figure("tests that pass in optimized processes", int(passed[1]), at_least=2000)


_itself = test_tests_pass_where_python_is_optimized


@pytest.mark.safety("S14")
def test_asserts_of_tests_are_executed() -> None:
    """With and without optimizing: the test above runs this one, too."""
    with pytest.raises(AssertionError, match="of a test"):
        assert sys.flags.optimize == 7, "an assert of a test"
    with pytest.raises(AssertionError, match="of a helper"):
        asserting.holds(False)


@pytest.mark.safety("S14")
def test_no_guard_is_an_assert(repository: Path) -> None:
    """So what asserts of the product check can't come from outside."""
    for path in gate.python_files(repository, *PACKAGES):
        assert not [one for one in gate.findings(path.name, path.read_text()) if "assert" in str(one)], path


@pytest.mark.safety("S14")
def test_the_setting_reaches_the_processes() -> None:
    command = [sys.executable, "-c", "import sys; print(sys.flags.optimize); assert False"]
    ran = subprocess.run(command, env={**os.environ, **OPTIMIZED}, capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"
