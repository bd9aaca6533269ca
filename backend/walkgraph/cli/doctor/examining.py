"""Collect facts about this machine for `diagnosing`. Starts nothing but `nvcc --version`, changes nothing, and never
imports torch."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pynvml  # pyright: ignore[reportMissingTypeStubs]

from walkgraph.cli.doctor.diagnosing import Facts, Gpu, Root, Versions

if TYPE_CHECKING:
    from walkgraph.settings import Settings

EXTRAS = {
    "walkgraph-editor": "the studio",
    "psycopg": "PostgreSQL",
    "matplotlib": "pictures in the reports of `walkgraph bench`",
}
_PACKAGES = ("torch", "triton", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache", *EXTRAS)
_CUDA = Path("/usr/local/cuda/bin")
_CLOCK = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_SECONDS = 5.0
"""Timeout in seconds for other programs and services."""


def examine(settings: Settings) -> Facts:
    from walkgraph import plugins, starters
    from walkgraph.placement.hardware import find_hardware

    hardware = find_hardware()
    packages = dict(_packages())
    gpus, driver, driver_cuda = _gpus()
    home = settings.home
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    return Facts(
        python=tuple(sys.version_info[:3]),
        system=platform.system(),
        packages=packages,
        torch_cuda=_torch_cuda(),
        torch_triton=_torch_triton(),
        gpus=gpus,
        driver=driver,
        driver_cuda=driver_cuda,
        device_files=Path("/dev/nvidia0").exists(),
        nvcc=_nvcc(),
        compiler=next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None),
        ninja=shutil.which("ninja") is not None or importlib.util.find_spec("ninja") is not None,
        cores=hardware.cores,
        memory=hardware.devices[0].free,
        shm=hardware.shm,
        **_home(home, there),
        home_system=_file_system(there),
        disk=shutil.disk_usage(there).free,
        files=resource.getrlimit(resource.RLIMIT_NOFILE),
        roots=tuple(map(_root, settings.checkpoint_roots)),
        starters=tuple(starters.names()),
        **_database(settings),
        clocksource=_read(_CLOCK),
        **_service(settings),
        plugins={name: name in plugins.installed() for name in settings.all_plugins()},
        extras=EXTRAS,
    )


def _packages() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _torch_cuda() -> str | None:
    """Read from torch's version file, as importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    text = _read(Path(spec.origin).with_name("version.py")) if spec and spec.origin else None
    found = re.search(r"^cuda(?::[^=]*)? = ['\"]([\d.]+)['\"]", text or "", re.MULTILINE)
    return found[1] if found else None


def _torch_triton() -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        for wanted in metadata.requires("torch") or ():
            found = re.match(r"triton\s*==\s*([\d.]+)", wanted)
            if found:
                return found[1]
    return None


def _gpus(nvml: Any = pynvml) -> tuple[tuple[Gpu, ...], str | None, Versions | None]:
    """Every GPU, the driver version and the newest CUDA version it supports; empty without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return (), None, None
    try:
        cuda = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
        found = tuple(_gpu(nvml, number) for number in range(nvml.nvmlDeviceGetCount()))
        return found, str(nvml.nvmlSystemGetDriverVersion()), (cuda // 1000, cuda % 1000 // 10)
    except nvml.NVMLError:
        return (), "unknown", None
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> Gpu:
    handle: Any = nvml.nvmlDeviceGetHandleByIndex(number)
    memory: Any = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        name=f"cuda:{number}",
        label=str(nvml.nvmlDeviceGetName(handle)),
        total=int(memory.total),
        free=int(memory.free),
        capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
    )


def _nvcc() -> str | None:
    """The release that the compiler reports."""
    path = shutil.which("nvcc") or shutil.which("nvcc", path=str(_CUDA))
    if path is None:
        return None
    try:
        facts = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"release ([\d.]+)", facts)
    return found[1] if found else None


def _home(home: Path, there: Path) -> dict[str, Any]:
    status = home.stat() if home.exists() else None
    return {
        "home": str(home),
        "home_mode": stat.S_IMODE(status.st_mode) if status else None,
        "home_mine": status is None or status.st_uid == os.getuid(),
        "home_writable": os.access(there, os.W_OK),
    }


def _file_system(path: Path) -> str:
    """File system of the mount that holds a path; empty if unknown."""
    text, best, kind = _read(Path("/proc/mounts")) or "", "", ""
    whole = str(path.resolve())
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and len(words[1]) >= len(best) and (whole + "/").startswith(words[1].rstrip("/") + "/"):
            best, kind = words[1], words[2]
    return kind


def _root(path: Path) -> Root:
    folder = path.is_dir()
    readable = folder and os.access(path, os.R_OK | os.X_OK)
    found = [entry for entry in path.iterdir() if any(entry.glob("*.safetensors"))] if readable else []
    return Root(path=str(path), folder=folder, readable=readable, checkpoints=len(found))


def _database(settings: Settings) -> dict[str, Any]:
    """Check whether the database server can be reached; SQLite is checked with the home."""
    if settings.database_url is None:
        return {}
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        url = make_url(settings.database_url)
    except ArgumentError:
        return {"database": "unreadable", "database_problem": "`WALKGRAPH_DATABASE_URL` is no URL"}
    facts: dict[str, Any] = {"database": url.render_as_string(hide_password=True)}
    if not url.drivername.startswith("postgres"):
        return facts
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"), connect_args={"connect_timeout": int(_SECONDS)}
        )
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
        engine.dispose()
    except ImportError:
        return facts
    except SQLAlchemyError as error:
        return {**facts, "database_problem": _reason(error)}
    return facts


def _reason(error: Exception) -> str:
    """A short reason. The driver's own message may hold the password."""
    text = str(error)
    for sign, reason in (
        ("password authentication failed", "the password is wrong"),
        ("does not exist", "the database or the user doesn't exist"),
        ("refused", "nothing listens there"),
        ("timeout", "it didn't answer in time"),
        ("resolve", "its host has no address"),
    ):
        if sign in text:
            return reason
    return f"it can't be reached ({type(error).__name__})"


def _service(settings: Settings) -> dict[str, Any]:
    """Facts about the service that runs here, or that the settings name."""
    from walkgraph.client import Client, ClientError, read_address
    from walkgraph.settings import is_running

    running, address = is_running(settings), read_address(settings)
    if settings.url is None and not running:
        stale = address.pid if address is not None else None
        return {"port": settings.port, "port_taken": _taken(settings), "stale": stale}
    if settings.url is None and address is None:
        return {"running": True}
    try:
        with Client.local(settings) as client:
            return {
                "running": running,
                "service": client.url,
                "service_ready": client.ready(),
                "skew": _skew(client.url),
            }
    except ClientError as error:
        return {"running": running, "service_problem": str(error)}


def _taken(settings: Settings) -> bool:
    """True if another program listens on the service's port."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe, contextlib.suppress(OSError):
        probe.settimeout(_SECONDS)
        return settings.port != 0 and probe.connect_ex((settings.host.strip("[]"), settings.port)) == 0
    return False


def _skew(url: str) -> float | None:
    """Seconds by which the service's clock is ahead, from the date header of an answer."""
    import httpx

    try:
        answer = httpx.get(f"{url}/health/live", timeout=_SECONDS, trust_env=False)
        return parsedate_to_datetime(answer.headers["date"]).timestamp() - time.time()
    except (httpx.HTTPError, KeyError, ValueError):
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
