"""`walkgraph doctor` on invented machines, each with one fault, and on this one."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from walkgraph.cli import main as cli
from walkgraph.cli.doctor import clustering, examining
from walkgraph.cli.doctor.diagnosing import GIB, Facts, Finding, Gpu, Root, findings, version
from walkgraph.placement.hardware import Device, Hardware
from walkgraph.placement.transports import TransportDeclaration
from walkgraph.settings import Settings, only_one, prepare_home

PACKAGES = {"torch": "2.13.0+cu130", "triton": "3.7.1", "flashinfer-python": "0.7.2.post1"}
H200 = Gpu(name="cuda:0", label="NVIDIA H200", total=141 * GIB, free=140 * GIB, capability=(9, 0))
LAPTOP = Facts(
    python=(3, 12, 1), system="Linux", packages={"torch": "2.13.0+cpu"}, cores=8, memory=16 * GIB, shm=8 * GIB,
    home="/home/me/.walkgraph", disk=100 * GIB, files=(65536, 65536), starters=("shapes",), clocksource="tsc",
)  # fmt: skip
POSTGRES = {**LAPTOP.packages, "psycopg": "3.3"}
SERVER = replace(
    LAPTOP, packages=PACKAGES, torch_cuda="13.0", torch_triton="3.7.0", gpus=(H200,), driver="580.95",
    driver_cuda=(13, 1), device_files=True, nvcc="13.0", compiler="cc", ninja=True,
)  # fmt: skip


def only(facts: Facts) -> Finding:
    """The one finding that isn't well."""
    found = [finding for finding in findings(facts) if finding.level != "ok"]
    assert len(found) == 1, found
    assert found[0].do, "it must say what to do"
    return found[0]


def root(**changed: bool) -> Root:
    return replace(Root(path="/w", folder=True, readable=True, checkpoints=0), **changed)


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in PACKAGES.items() if name not in names}


@pytest.mark.parametrize("facts", [LAPTOP, SERVER, replace(SERVER, torch_triton=None, driver_cuda=(13, 0))])
def test_machines_without_faults_have_none(facts: Facts) -> None:
    assert {finding.level for finding in findings(facts)} == {"ok"}
    assert not any(finding.do for finding in findings(facts))


@pytest.mark.parametrize(
    ("facts", "level", "what", "said"),
    [
        (replace(LAPTOP, python=(3, 10, 4)), "fail", "python", "3.10.4"),
        (replace(LAPTOP, system="Darwin"), "fail", "system", "Darwin"),
        (replace(LAPTOP, packages={}), "fail", "torch", "missing"),
        (replace(LAPTOP, packages={"torch": "2.10.1"}), "fail", "torch", "2.10.1"),
        (replace(LAPTOP, packages={"torch": "2.16.0"}), "fail", "torch", "2.16.0"),
        (replace(LAPTOP, plugins={"mine": False, "other": True}), "fail", "plug-in", "mine is not installed"),
        (replace(LAPTOP, device_files=True), "fail", "gpu", "doesn't answer"),
        (replace(LAPTOP, driver="580"), "fail", "gpu", "doesn't answer"),
        (replace(SERVER, gpus=(replace(H200, capability=(7, 5)),)), "fail", "cuda:0", "capability 7.5"),
        (replace(SERVER, gpus=(replace(H200, free=40 * GIB),)), "warn", "cuda:0", "40 of 141 GiB"),
        (replace(SERVER, torch_cuda=None), "fail", "cuda", "a CPU build"),
        (replace(SERVER, driver_cuda=(12, 8)), "fail", "driver", "supports CUDA 12.8, but torch needs 13.0"),
        (replace(SERVER, packages=without("triton")), "fail", "triton", "missing"),
        (replace(SERVER, torch_triton="3.6.0"), "fail", "triton", "torch needs 3.6.0"),
        (replace(SERVER, packages=without("flashinfer-python")), "warn", "flashinfer-python", "missing"),
        (replace(SERVER, packages={**PACKAGES, "flashinfer-python": "0.6.7"}), "fail", "flashinfer-python", "0.6.7"),
        (replace(SERVER, packages={**PACKAGES, "flashinfer-cubin": "0.6"}), "fail", "flashinfer-python", "cubin is"),
        (replace(SERVER, compiler=None), "fail", "compiler", "gcc"),
        (replace(SERVER, nvcc=None), "warn", "nvcc", "missing"),
        (replace(SERVER, nvcc="12.4"), "warn", "nvcc", "12.4, but torch is built with CUDA 13.0"),
        (replace(SERVER, ninja=False), "warn", "ninja", "missing"),
        (replace(LAPTOP, memory=GIB), "warn", "cpu", "1.0 GiB free"),
        (replace(LAPTOP, shm=64 * 2**20), "warn", "shared memory", "0.06 GiB"),
        (replace(LAPTOP, files=(1024, 4096)), "warn", "open files", "1024 now, at most"),
        (replace(LAPTOP, home_writable=False), "fail", "home", "can't be written"),
        (replace(LAPTOP, home_mode=0o700, home_mine=False), "fail", "home", "belongs to another user"),
        (replace(LAPTOP, home_mode=0o755), "warn", "home", "readable by other users"),
        (replace(LAPTOP, home_system="nfs4"), "warn", "home's disk", "nfs4"),
        (replace(LAPTOP, home="/" + "x" * 80), "warn", "home's path", "81 characters"),
        (replace(LAPTOP, disk=GIB), "warn", "disk", "1.0 GiB free"),
        (replace(LAPTOP, roots=(root(folder=False),)), "fail", "checkpoints", "/w"),
        (replace(LAPTOP, roots=(root(readable=False),)), "fail", "checkpoints", "read"),
        (replace(LAPTOP, roots=(root(),)), "warn", "checkpoints", "no checkpoints"),
        (replace(LAPTOP, database="postgresql://u:***@h/n"), "fail", "database", "driver is missing"),
        (
            replace(LAPTOP, packages=POSTGRES, database="postgresql://h/n", database_problem="no"),
            "fail", "database", "postgresql://h/n: no",
        ),
        (replace(LAPTOP, clocksource="hpet"), "warn", "clock", "hpet"),
        (replace(LAPTOP, skew=-40.0, service="http://x", service_ready=True), "warn", "clocks", "40 s behind"),
        (replace(LAPTOP, running=True), "warn", "service", "a process holds this home"),
        (replace(LAPTOP, running=True, service="http://x", service_ready=False), "warn", "service", "not ready"),
        (replace(LAPTOP, running=True, service_problem="no answer"), "fail", "service", "no answer"),
        (replace(LAPTOP, port=8421, port_taken=True), "warn", "port", "another program listens on 8421"),
    ],
)  # fmt: skip
def test_one_fault_is_one_finding(facts: Facts, level: str, what: str, said: str) -> None:
    found = only(facts)
    assert (found.level, found.what) == (level, what)
    assert said in found.detail


def test_what_a_service_left_behind_is_told() -> None:
    assert "process 77 died" in next(f.detail for f in findings(replace(LAPTOP, stale=77)) if f.what == "service")


def test_versions_are_read_without_what_was_built_for() -> None:
    assert version("2.13.0+cu130") == (2, 13, 0)
    assert version("0.7.2.post1") == (0, 7, 2)


# ── this machine ────────────────────────────────────────────────────────────────────────────────


def test_facts_of_this_machine_are_read(tmp_path: Path) -> None:
    (tmp_path / "weights" / "one").mkdir(parents=True)
    (tmp_path / "weights" / "one" / "model.safetensors").touch()
    settings = Settings(
        home=tmp_path / "home", checkpoint_roots=(tmp_path / "weights", tmp_path / "no"), port=0, plugins=("x",)
    )
    facts = examining.examine(settings)
    assert facts.python == sys.version_info[:3]
    assert facts.home_mode is None
    assert [root.checkpoints for root in facts.roots] == [1, 0]
    assert facts.packages["torch"].startswith("2.")
    assert not facts.running
    assert facts.plugins == {"x": False}
    prepare_home(settings)
    facts = examining.examine(settings)
    assert facts.home_mode == 0o700
    assert facts.home_mine
    assert facts.home_system
    settings.address_file.write_text(json.dumps({"pid": os.getpid(), "url": "http://127.0.0.1:1"}))
    assert examining.examine(settings).stale == os.getpid()
    with only_one(settings):
        settings.address_file.unlink()
        facts = examining.examine(settings)
        assert facts.running
        assert facts.service is None


class Nvml:
    """A driver with one GPU, or one that doesn't answer."""

    class NVMLError(Exception):
        pass

    def __init__(self, *, works: bool) -> None:
        self._works = works

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        if not self._works:
            raise self.NVMLError
        return 13010

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95"

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=141 * GIB, free=140 * GIB)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 9, 0


def test_the_driver_is_asked_for_what_it_runs() -> None:
    assert examining._gpus(Nvml(works=True)) == ((H200,), "580.95", (13, 1))
    assert examining._gpus(Nvml(works=False)) == ((), "unknown", None)
    assert set(dir(pynvml)) >= {name for name in dir(Nvml) if name.startswith("nvml")}


def test_a_database_that_is_not_there_is_told_without_its_password(tmp_path: Path) -> None:
    url = "postgresql://me:very-secret@127.0.0.1:1/walkgraph"
    facts = examining.examine(Settings(home=tmp_path / "home", database_url=url, port=0))
    assert facts.database_problem == "nothing listens there"
    assert "very-secret" not in repr(facts)


def test_wrong_settings_are_all_that_can_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call: Callable[[], Any] = cli.main
    monkeypatch.setenv("WALKGRAPH_PORT", "many")
    monkeypatch.setattr(sys, "argv", ["walkgraph", "doctor", "--json"])
    with pytest.raises(SystemExit) as left:
        call()
    assert left.value.code == 1
    [found] = json.loads(capsys.readouterr().out)
    assert "`WALKGRAPH_PORT`" in found["detail"]
    assert found["do"]


# ── the cluster ──


CPU = Device(name="cpu", total=64 * GIB, free=48 * GIB)
FAR = Hardware(host="far", cores=16, shm=GIB, devices=(CPU, replace(CPU, name="cuda:0")), address="10.0.0.2")
NIXL = {"nixl": TransportDeclaration(reach="cluster", cost=9, extra="cluster")}


def hosts(*others: Hardware, **here: Any) -> list[Finding]:
    first = Hardware(host="near", cores=8, shm=GIB, devices=(CPU,), address="10.0.0.1", others=others)
    return [*clustering.host_findings(replace(first, **here), NIXL)]


def test_hosts_without_faults_have_none() -> None:
    assert hosts(FAR) == [
        Finding("ok", "host near", "10.0.0.1, 8 CPUs, 0 GPUs"),
        Finding("ok", "host far", "10.0.0.2, 16 CPUs, 1 GPUs"),
    ]


@pytest.mark.parametrize(
    ("changed", "detail", "do"),
    [
        ({"faults": ("its clock is off; mend it",)}, "its clock is off", "mend it"),
        ({"lacks": ("nixl", "shm")}, "host `far` lacks `nixl`", "run `pip install 'walkgraph[cluster]'` there"),
    ],
)
def test_a_fault_of_a_host_says_what_to_do(changed: dict[str, Any], detail: str, do: str) -> None:
    well, found = hosts(replace(FAR, **changed))
    assert well.level == "ok"
    assert (found.level, found.what, found.do) == ("fail", "host far", do)
    assert detail in found.detail


def test_checkpoints_that_a_host_has_not_are_copied() -> None:
    _, found = hosts(replace(FAR, missing=("/weights",)))
    assert (found.level, found.what) == ("warn", "host far")
    assert "no `/weights`: checkpoints are copied there" in found.detail
    assert found.do
    assert [finding.level for finding in hosts(FAR, missing=("/weights",))] == ["ok", "ok"]


def test_one_host_needs_nothing_between_hosts() -> None:
    assert [finding.level for finding in hosts(lacks=("nixl",))] == ["ok"]
    assert [finding.level for finding in hosts(FAR, lacks=("nixl",))] == ["fail", "ok"]


def test_a_cluster_is_not_asked_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", dict[str, Any]().get)
    [found] = clustering.cluster_findings(Settings())
    assert (found.level, found.do) == ("fail", "pip install 'walkgraph[ray,cluster]'")
