"""The product under `python -O`: its processes are started so, while those that test them keep their own asserts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts import gate
from tests.safety.plugin import Figure, Scale

PACKAGES = ("backend/walkgraph", "editor/walkgraph_editor")
AGAIN = ("tests/system/test_service.py", "tests/system/test_deployment.py", "tests/system/test_drain.py")
"""The tests that start processes of the product and attack, kill or query them."""


@pytest.mark.safety("S14")
@pytest.mark.timeout(0)
def test_tests_pass_where_the_product_runs_optimized(repository: Path, scale: Scale, figure: Figure) -> None:
    chosen = scale(["tests/system/test_service.py", "-k", "draws or private"], [*AGAIN])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--optimized", *chosen]
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=3600, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]
    passed = int(ran.stdout.rpartition(" passed")[0].rpartition("\n")[2].split()[-1])
    figure("tests of optimized processes that pass", passed, at_least=20)


@pytest.mark.safety("S14")
def test_no_guard_is_an_assert(repository: Path) -> None:
    """So that what runs in the tests' own process is the same with and without `-O`."""
    for path in gate.python_files(repository, *PACKAGES):
        assert not [one for one in gate.findings(path.name, path.read_text()) if "assert" in str(one)], path


@pytest.mark.safety("S14")
def test_the_option_reaches_the_processes() -> None:
    environment = {**os.environ, "PYTHONOPTIMIZE": "1"}
    command = [sys.executable, "-c", "import sys; print(sys.flags.optimize); assert False"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "1\n"
