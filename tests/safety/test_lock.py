"""The lock against the database of known vulnerabilities, where that can be reached."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.safety.plugin import Figure, Scale

UNREACHED = ("ConnectionError", "Max retries", "Connection refused", "Name or service", "Could not find", "HTTPError")


@pytest.mark.safety("S12")
@pytest.mark.timeout(0)
def test_no_pin_has_a_known_vulnerability(repository: Path, scale: Scale, figure: Figure) -> None:
    if not scale(False, True):
        pytest.skip("asks a database on the network: at the long scale alone")
    audit = shutil.which("pip-audit", path=str(Path(sys.executable).parent)) or shutil.which("pip-audit")
    if audit is None:
        pytest.skip("`pip-audit` is not installed; `pip install pip-audit` brings it")
    lock = repository / "backend" / "locks" / "runtime.txt"
    command = [audit, "--requirement", str(lock), "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if ran.returncode and any(word in ran.stderr for word in UNREACHED):
        pytest.skip("the database of vulnerabilities can't be reached from here")
    figure("pins with a known vulnerability", ran.stdout.count("\n") if ran.returncode else 0, at_most=0)
    assert ran.returncode == 0, ran.stdout + ran.stderr
