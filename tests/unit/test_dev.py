"""`./dev`: which torch it chooses, when it does nothing, and what its requirements are."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

CPU_FILE = "file:///wheels/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl"
CUDA_FILE = "https://index.example/torch-2.13.0-cp311-cp311-linux_x86_64.whl"


@pytest.fixture
def dev(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with an environment of its own under `tmp_path` and its processes recorded."""
    loader = importlib.machinery.SourceFileLoader("walkgraph_dev", str(repository / "dev"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("walkgraph_dev", loader))
    loader.exec_module(module)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    commands: list[str] = []
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(module, "STAMP", tmp_path / ".venv" / ".stamp.json")
    monkeypatch.setattr(module, "must", lambda *words: commands.append(" ".join(map(str, words[1:]))))
    monkeypatch.setattr(module, "installed", lambda package: None)
    monkeypatch.setattr(module.sys, "platform", "linux")
    module.commands = commands
    return module


def test_an_environment_that_is_there_is_left_alone(dev: ModuleType) -> None:
    dev.STAMP.write_text(json.dumps({**dev.fingerprint(), "extent": "dev"}))
    dev.environment("dev", None)
    dev.environment("runtime", None)
    assert dev.commands == []


@pytest.mark.parametrize("change", [{"extent": "runtime"}, {"requirements": "older"}, {"gpu": "other"}, {"torch": "1"}])
def test_a_stale_environment_is_made_anew(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    monkeypatch.setattr(dev, "install_torch", lambda index, gpu: dev.commands.append("torch"))
    dev.STAMP.write_text(json.dumps({**dev.fingerprint(), "extent": "dev"} | change))
    dev.environment("dev", None)
    assert [command for command in dev.commands if "dev.txt" in command or command == "torch"][-1] == "torch"
    assert json.loads(dev.STAMP.read_text()) == {**dev.fingerprint(), "extent": "dev"}


def test_bytecode_is_kept_in_the_environment_on_a_machine_that_writes_none(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said.py").write_text("print(1)")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")

    def said(options: object, rest: list[str]) -> int:
        return subprocess.run([sys.executable, "-c", "import said"], cwd=tmp_path, check=False).returncode

    monkeypatch.setattr(dev, "VERBS", (said,))
    assert dev.main(["said"]) == 0
    assert [path.name.split(".")[0] for path in (tmp_path / ".venv").rglob("said.*.pyc")] == ["said"]
    assert not (tmp_path / "__pycache__").exists()


def test_a_failed_install_leaves_no_stamp(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*words: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(dev, "must", fails)
    with pytest.raises(SystemExit):
        dev.environment("dev", None)
    assert not dev.STAMP.exists()


def test_a_cpu_build_at_hand_is_installed_alone(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "resolve", lambda requirement: CPU_FILE)
    dev.install_torch(None, gpu=False)
    [command] = dev.commands
    assert "--no-deps" in command
    assert CPU_FILE in command


def test_a_cuda_build_is_announced_with_its_size(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dev, "resolve", lambda requirement: CUDA_FILE)
    dev.install_torch(None, gpu=False)
    said = capsys.readouterr().out
    assert "3 GB" in said
    assert "--torch-index" in said
    [command] = dev.commands
    assert "--no-deps" not in command


def test_a_given_index_is_used(dev: ModuleType) -> None:
    dev.install_torch("https://cpu.example/", gpu=False)
    [command] = dev.commands
    assert "--index-url https://cpu.example/" in command


def test_a_gpu_gets_the_gpu_extra(dev: ModuleType) -> None:
    dev.install_torch(None, gpu=True)
    [command] = dev.commands
    assert "flashinfer-python" in command
    assert "triton" in command


@pytest.mark.parametrize(("version", "kept"), [("2.13.0+cpu", True), ("2.12.0", False)])
def test_a_torch_that_fits_is_kept(dev: ModuleType, monkeypatch: pytest.MonkeyPatch, version: str, kept: bool) -> None:
    monkeypatch.setattr(dev, "installed", lambda package: version)
    monkeypatch.setattr(dev, "resolve", lambda requirement: CPU_FILE)
    dev.install_torch(None, gpu=False)
    assert (dev.commands == []) is kept


@pytest.mark.parametrize(("version", "announced"), [("2.13.0", False), ("2.13.0+cpu", True), ("2.12.0", True)])
def test_a_gpu_has_the_triton_of_its_torch_after_the_lock_was_installed(
    dev: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
    announced: bool,
) -> None:
    monkeypatch.setattr(dev, "installed", lambda package: version)
    dev.install_torch(None, gpu=True)
    [command] = dev.commands
    assert {dev.TORCH, *dev.extras("gpu")} <= set(command.split())
    assert ("GPU found" in capsys.readouterr().out) is announced


def test_requirements_leave_out_what_the_machine_decides(dev: ModuleType) -> None:
    lines = dev.requirements()
    assert not [line for line in lines if line.startswith(("torch", "walkgraph"))]
    assert any(line.startswith("streamlit") for line in lines)
    assert not dev.is_chosen_here("torchmetrics>=1")
    assert dev.is_chosen_here("torch>=2.11,<2.16")


def test_an_unknown_verb_is_refused(dev: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dev.main(["tset"])
    assert "invalid choice" in capsys.readouterr().err


def test_arguments_after_the_verb_reach_it(dev: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def test(options: object, rest: list[str]) -> int:
        seen.append(rest)
        return 0

    monkeypatch.setattr(dev, "VERBS", (test,))
    monkeypatch.setattr(dev, "keep_bytecode", lambda: None)
    assert dev.main(["test", "-q", "-k", "walk", "tests/unit", "--torch-index", "x"]) == 0
    assert seen == [["-q", "-k", "walk", "tests/unit"]]


@pytest.mark.parametrize(
    ("cores", "gib", "waiting", "wanted"),
    [(2, 16, True, 4), (2, 8, True, 2), (2, 4, True, 2), (64, 128, True, 6), (64, 128, False, 4), (2, 16, False, 2)],
)
def test_tests_that_wait_get_more_processes_than_cores_where_there_is_memory(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch, cores: int, gib: int, waiting: bool, wanted: int
) -> None:
    sizes = {"SC_PHYS_PAGES": gib << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(dev.os, "cpu_count", lambda: cores)
    monkeypatch.setattr(dev.os, "sysconf", sizes.__getitem__)
    assert dev.processes(waiting=waiting) == wanted
