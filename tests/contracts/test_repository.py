"""The repository contains no forbidden words, and its locks match the requirements of its packages."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = "tests/contracts/test_repository.py"
BUILT = (":!*/ui_dist/*", ":!*/package-lock.json", ":!backend/locks/*")

WORDS = {
    "a path of one machine": r"/(work|farm|home/[a-z]+|root)/[a-z]",
    "an issue's number": r"\b[Ii]ssue #?[0-9]+",
    "something left undone": r"\b(TODO|FIXME|XXX|HACK)\b",
}
HOST = re.compile(r"\b(?:https?|wss?|tcp)://([A-Za-z0-9.\-]+\.[A-Za-z0-9\-]+|localhost)")
HOSTS = {
    "127.0.0.1", "localhost", "0.0.0.0",
    "json-schema.org",  # the dialect of the published schemas
    "www.w3.org",       # the namespace of SVG
    "ui.perfetto.dev",  # where a trace file can be opened
}  # fmt: skip
RESERVED = (".example", ".invalid", ".test")
"""Endings that belong to nobody, for examples."""
LOCKS = ("tools", "runtime", "dev", "cluster")


@pytest.mark.parametrize("meaning", WORDS)
def test_the_repository_speaks_of_the_product_alone(repository: Path, meaning: str) -> None:
    assert grep(repository, WORDS[meaning]) == []


@pytest.mark.parametrize("planted", ["see /work/main/x", "fixes issue #12", "# TODO: later"])
def test_a_planted_word_is_found(tmp_path: Path, planted: str) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "notes.md").write_text(planted)
    subprocess.run(["git", "-C", tmp_path, "add", "notes.md"], check=True)
    assert [line for pattern in WORDS.values() for line in grep(tmp_path, pattern)] == [f"notes.md:1:{planted}"]


def test_no_file_names_a_host_of_the_network(repository: Path) -> None:
    lines = grep(repository, r"(https?|wss?|tcp)://[A-Za-z0-9]", *BUILT)
    assert [line for line in lines if strange_hosts(line)] == []


def test_a_planted_host_is_found() -> None:
    assert strange_hosts("fetch('https://cdn.example.net/x.js')") == {"cdn.example.net"}
    assert strange_hosts("curl http://127.0.0.1:8470/health http://localhost:1/") == set()


@pytest.mark.safety("S12")
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_with_hashes_and_names_no_host(repository: Path, name: str) -> None:
    text = (repository / "backend" / "locks" / f"{name}.txt").read_text()
    assert "://" not in text
    pins = [line for line in text.splitlines() if line and not line.startswith(("#", " "))]
    assert pins
    assert [line for line in pins if not re.match(r"[a-z0-9._-]+==\S+.* \\$", line)] == []
    assert len(re.findall(r"--hash=sha256:", text)) >= len(pins)


def test_the_locks_hold_what_the_packages_ask_for(repository: Path) -> None:
    pins = locked(repository / "backend" / "locks" / "dev.txt")
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    editor = tomllib.loads((repository / "editor" / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"], *editor["dependencies"]]
    missing = [line for line in wanted if not satisfied(Requirement(line), pins)]
    assert sorted(missing) == ["torch>=2.11,<2.16", "walkgraph"], "run `./dev lock`"


def test_the_locks_leave_torch_to_the_machine(repository: Path) -> None:
    """And, where nothing is tested, the triton that torch brings."""
    tools, runtime, dev, cluster = (locked(repository / "backend" / "locks" / f"{name}.txt") for name in LOCKS)
    assert not {"torch", "triton", "flashinfer-python"} & (tools.keys() | runtime.keys())
    assert not {"torch", "flashinfer-python"} & dev.keys()
    assert cluster.keys() == {"nixl-cu13"}, "which takes any torch that is there"


def test_the_smaller_lock_is_part_of_the_larger(repository: Path) -> None:
    tools, runtime, dev, _ = (locked(repository / "backend" / "locks" / f"{name}.txt") for name in LOCKS)
    assert tools.items() <= runtime.items() <= dev.items()


def grep(root: Path, pattern: str, *less: str) -> list[str]:
    command = ["git", "-C", root, "grep", "-nIE", pattern, "--", ".", f":!{HERE}", ":!*/ui_dist/*", *less]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return answer.stdout.splitlines()


def strange_hosts(line: str) -> set[str]:
    return {host for host in HOST.findall(line) if host not in HOSTS and not host.endswith(RESERVED)}


def locked(path: Path) -> dict[str, str]:
    found = re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def satisfied(requirement: Requirement, pins: dict[str, str]) -> bool:
    version = pins.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)
