"""Turn facts about a machine into findings, each with advice. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Level = Literal["ok", "warn", "fail"]
Versions = tuple[int, ...]
GIB = 2**30

PYTHON = (3, 11)
TORCH = (2, 11), (2, 16)
"""The oldest supported release, and the first unsupported one."""
FLASHINFER = (0, 6, 8)
OLDEST_GPU = (8, 0)
"""The least compute capability: needed for bfloat16 and the kernels that use it."""
TUNED_GPU = (9, 0)
SHM, DISK, MEMORY = GIB, 5 * GIB, 2 * GIB
FILES = 4096
"""The least number of open files: sockets of clients, workers and telemetry."""
LONGEST_HOME = 60
"""Characters. Sockets lie below the home, and their paths may have 107."""
QUICK_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")
SKEW = 5.0
"""Seconds between two clocks that traces and time limits tolerate."""
BORROWED = 0.2
"""Share of a GPU's memory in use by other processes above which there is a warning."""
FAR = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre")
"""File systems whose locks are unreliable."""


class Finding(NamedTuple):
    level: Level
    what: str
    detail: str
    do: str = ""
    """Advice; empty if there is nothing to do."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    name: str
    label: str
    total: int
    free: int
    capability: Versions | None = None


@dataclass(frozen=True, kw_only=True)
class Root:
    path: str
    folder: bool
    readable: bool
    checkpoints: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts that were found; None: not readable, or absent."""

    python: Versions
    system: str
    packages: Mapping[str, str]
    """Distribution -> version, for the relevant ones."""
    torch_cuda: str | None = None
    """CUDA version that torch was built with; None: a CPU build, or no torch."""
    torch_triton: str | None = None
    """The triton release that torch requires."""
    gpus: Sequence[Gpu] = ()
    driver: str | None = None
    driver_cuda: Versions | None = None
    """Newest CUDA version that the driver supports."""
    device_files: bool = False
    """`/dev/nvidia0` exists."""
    nvcc: str | None = None
    compiler: str | None = None
    ninja: bool = False
    cores: int = 1
    memory: int = 0
    shm: int = 0
    home: str = ""
    home_mode: int | None = None
    """None: it doesn't exist yet."""
    home_mine: bool = True
    home_writable: bool = True
    home_system: str = ""
    """Kind of its file system."""
    disk: int = 0
    files: tuple[int, int] | None = None
    """Limits of open files: current, maximum."""
    roots: Sequence[Root] = ()
    starters: Sequence[str] = ()
    database: str | None = None
    """The URL without its password; None: SQLite in the home."""
    database_problem: str | None = None
    clocksource: str | None = None
    skew: float | None = None
    """Seconds by which the service's clock is ahead."""
    running: bool = False
    """A process holds the home's lock."""
    service: str | None = None
    """The address of the service."""
    service_ready: bool | None = None
    service_problem: str | None = None
    stale: int | None = None
    """Process id in an address file that a service left behind."""
    port: int = 0
    port_taken: bool = False
    plugins: Mapping[str, bool] = field(default_factory=dict[str, bool])
    """Plug-ins of the settings -> True if installed."""
    extras: Mapping[str, str] = field(default_factory=dict[str, str])
    """Optional distribution -> its purpose."""


def findings(facts: Facts) -> list[Finding]:
    parts = (_software, _gpus, _kernels, _memory, _home, _weights, _database, _clocks, _service)
    return [finding for part in parts for finding in part(facts)]


def version(text: str) -> Versions:
    """`2.13.0+cu130` -> (2, 13, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


def wrong_setting(path: Sequence[int | str], message: str) -> Finding:
    """A finding about the settings. `path`: pydantic's location; empty if several settings conflict."""
    name = f"`WALKGRAPH_{str(path[0]).upper()}`: " if path else ""
    text = message.removeprefix("Value error, ")
    return Finding(
        "fail", "settings", f"{name}{text[:1].lower()}{text[1:]}", "fix it, then run `walkgraph doctor` again"
    )


def _software(facts: Facts) -> Iterator[Finding]:
    shown = ".".join(map(str, facts.python))
    new = facts.python >= PYTHON
    yield Finding("ok" if new else "fail", "python", shown, "" if new else "install Python 3.11 or newer")
    if facts.system != "Linux":
        yield Finding(
            "fail", "system", facts.system, "run it on Linux: workers need its shared memory and process handles"
        )
    torch = facts.packages.get("torch")
    if torch is None:
        yield Finding("fail", "torch", "missing", "pip install torch: the CPU build where there is no GPU")
    elif not TORCH[0] <= version(torch) < TORCH[1]:
        yield Finding("fail", "torch", torch, "install a release from 2.11 to 2.15: pip install 'torch>=2.11,<2.16'")
    else:
        yield Finding("ok", "torch", f"{torch}, {f'CUDA {facts.torch_cuda}' if facts.torch_cuda else 'for CPUs'}")
    for name, there in facts.plugins.items():
        do = "" if there else "pip install its package, or take it from the list: `walkgraph plugins list`"
        yield Finding("ok" if there else "fail", "plug-in", f"{name}{'' if there else ' is not installed'}", do)
    for package, purpose in facts.extras.items():
        found = facts.packages.get(package)
        yield Finding("ok", package, found or f"not installed (optional: {purpose})")


def _gpus(facts: Facts) -> Iterator[Finding]:
    if not facts.gpus:
        if facts.device_files or facts.driver:
            do = "reboot after an update of the driver; in a container, start it with `--gpus all`; see `nvidia-smi`"
            yield Finding("fail", "gpu", "there is a device, but the driver doesn't answer", do)
        else:
            yield Finding("ok", "gpu", "none: everything runs on the CPU")
        return
    for gpu in facts.gpus:
        yield _gpu(gpu)
    yield from _cuda(facts)


def _gpu(gpu: Gpu) -> Finding:
    detail = f"{gpu.label}, {gpu.free / GIB:.0f} of {gpu.total / GIB:.0f} GiB free"
    if gpu.capability is not None and gpu.capability < OLDEST_GPU:
        shown = ".".join(map(str, gpu.capability))
        do = "use a GPU of Ampere or newer; place nodes on `cpu` here"
        return Finding("fail", gpu.name, f"{detail}; compute capability {shown}", do)
    if gpu.free < gpu.total * (1 - BORROWED):
        return Finding(
            "warn", gpu.name, detail, "other processes use the rest, as `nvidia-smi` shows; plans use only free memory"
        )
    return Finding("ok", gpu.name, detail)


def _cuda(facts: Facts) -> Iterator[Finding]:
    """Check that driver, torch, triton and flashinfer fit each other."""
    if facts.torch_cuda is None:
        if "torch" in facts.packages:
            do = "install the CUDA build: pip uninstall torch, then pip install torch without an index for CPUs"
            yield Finding("fail", "cuda", "there are GPUs, but torch is a CPU build", do)
        return
    built, driver = version(facts.torch_cuda), facts.driver_cuda
    if driver is not None and driver[:1] < built[:1]:
        do = f"update the driver to one that runs CUDA {built[0]}, or install torch built with CUDA {driver[0]}"
        shown = ".".join(map(str, driver))
        yield Finding("fail", "driver", f"{facts.driver} supports CUDA {shown}, but torch needs {facts.torch_cuda}", do)
    elif driver is not None:
        yield Finding("ok", "driver", f"{facts.driver}, CUDA {'.'.join(map(str, driver))}")
    triton, wanted = facts.packages.get("triton"), facts.torch_triton
    if triton is None:
        yield Finding("fail", "triton", "missing", "pip install 'walkgraph[gpu]'")
    elif wanted is not None and version(triton)[:2] != version(wanted)[:2]:
        yield Finding("fail", "triton", f"{triton}, but torch needs {wanted}", f"pip install triton=={wanted}")
    else:
        yield Finding("ok", "triton", triton)
    yield _flashinfer(facts)


def _flashinfer(facts: Facts) -> Finding:
    found = facts.packages.get("flashinfer-python")
    if found is None:
        do = "pip install 'walkgraph[gpu]': attention over pages is slower without it"
        return Finding("warn", "flashinfer-python", "missing", do)
    if version(found) < FLASHINFER:
        return Finding("fail", "flashinfer-python", found, "pip install 'flashinfer-python>=0.6.8'")
    for beside in ("flashinfer-cubin", "flashinfer-jit-cache"):
        other = facts.packages.get(beside)
        if other is not None and version(other) != version(found):
            do = f"pip install {beside}=={found}, or uninstall it: with another version the import fails"
            return Finding("fail", "flashinfer-python", f"{found}, but {beside} is {other}", do)
    return Finding("ok", "flashinfer-python", found)


def _kernels(facts: Facts) -> Iterator[Finding]:
    """Check the compilers that build kernels at the first start on a GPU."""
    if not facts.gpus:
        return
    if facts.compiler is None:
        do = "install one: apt install build-essential; Triton's kernels need it at the first start"
        yield Finding("fail", "compiler", "none of `cc`, `gcc` and `clang` was found", do)
    else:
        yield Finding("ok", "compiler", facts.compiler)
    if "flashinfer-python" not in facts.packages or "flashinfer-jit-cache" in facts.packages:
        return
    if facts.nvcc is None:
        do = "install the CUDA toolkit (`nvcc` in the path or under /usr/local/cuda), or flashinfer-jit-cache"
        yield Finding("warn", "nvcc", "missing: FlashInfer can't compile its kernels", do)
    else:
        yield _toolkit(facts.nvcc, facts.torch_cuda)
    if not facts.ninja:
        yield Finding("warn", "ninja", "missing: FlashInfer can't compile its kernels", "pip install ninja")


def _toolkit(nvcc: str, cuda: str | None) -> Finding:
    if cuda is not None and version(nvcc)[:1] != version(cuda)[:1]:
        do = f"install the CUDA {version(cuda)[0]} toolkit, or put its `nvcc` first in the path"
        return Finding("warn", "nvcc", f"{nvcc}, but torch is built with CUDA {cuda}", do)
    return Finding("ok", "nvcc", nvcc)


def _memory(facts: Facts) -> Iterator[Finding]:
    enough = facts.memory >= MEMORY
    detail = f"{facts.cores} cores, {facts.memory / GIB:.1f} GiB free"
    yield Finding(
        "ok" if enough else "warn", "cpu", detail, "" if enough else "close other programs, or use a larger machine"
    )
    enough = facts.shm >= SHM
    do = "" if enough else "mount a larger /dev/shm (containers: `--shm-size=8g`): ranks exchange tensors there"
    yield Finding("ok" if enough else "warn", "shared memory", f"{facts.shm / GIB:.2f} GiB free", do)
    if facts.files is not None:
        now, most = facts.files
        enough = now >= FILES
        do = "" if enough else f"ulimit -n {min(65536, most)} before `walkgraph up`: many clients need many sockets"
        yield Finding("ok" if enough else "warn", "open files", f"{now} now, at most {most}", do)


def _home(facts: Facts) -> Iterator[Finding]:
    yield _home_itself(facts)
    if facts.home_system in FAR:
        do = "set `WALKGRAPH_HOME` to a local disk: SQLite's locks are unreliable on network file systems"
        yield Finding("warn", "home's disk", f"{facts.home_system}, a network file system", do)
    if len(facts.home) > LONGEST_HOME:
        do = "set `WALKGRAPH_HOME` to a shorter path: the paths of its sockets become too long"
        yield Finding("warn", "home's path", f"{len(facts.home)} characters", do)
    enough = facts.disk >= DISK
    do = "" if enough else "free some space: documents, traces and compiled kernels are written there"
    yield Finding("ok" if enough else "warn", "disk", f"{facts.disk / GIB:.1f} GiB free", do)


def _home_itself(facts: Facts) -> Finding:
    if not facts.home_writable:
        return Finding("fail", "home", f"{facts.home} can't be written", "change its owner, or set `WALKGRAPH_HOME`")
    if facts.home_mode is None:
        return Finding("ok", "home", f"{facts.home} (made at the first start)")
    if not facts.home_mine:
        return Finding(
            "fail", "home", f"{facts.home} belongs to another user", "set `WALKGRAPH_HOME` to a folder of your own"
        )
    if facts.home_mode & 0o077:
        return Finding(
            "warn", "home", f"{facts.home} is readable by other users", f"chmod 700 {facts.home}: its token lies there"
        )
    return Finding("ok", "home", facts.home)


def _weights(facts: Facts) -> Iterator[Finding]:
    yield Finding("ok", "starters", ", ".join(facts.starters) or "none")
    for root in facts.roots:
        if not root.folder:
            do = "correct `WALKGRAPH_CHECKPOINT_ROOTS`, or create the folder"
            yield Finding("fail", "checkpoints", f"{root.path} is not a folder", do)
        elif not root.readable:
            yield Finding("fail", "checkpoints", f"{root.path} can't be read", "change its permissions")
        elif not root.checkpoints:
            do = "put folders with safetensors files directly into it; `walkgraph import` makes graphs of them"
            yield Finding("warn", "checkpoints", f"{root.path} holds no checkpoints", do)
        else:
            yield Finding("ok", "checkpoints", f"{root.path}: {root.checkpoints}")


def _database(facts: Facts) -> Iterator[Finding]:
    if facts.database is None:
        yield Finding("ok", "database", "SQLite in the home")
    elif facts.database.startswith("postgres") and "psycopg" not in facts.packages:
        yield Finding("fail", "database", "PostgreSQL's driver is missing", "pip install 'walkgraph[postgres]'")
    elif facts.database_problem is not None:
        do = "start the server, and check `WALKGRAPH_DATABASE_URL`: host, port, name, user and password"
        yield Finding("fail", "database", f"{facts.database}: {facts.database_problem}", do)
    else:
        yield Finding("ok", "database", facts.database)


def _clocks(facts: Facts) -> Iterator[Finding]:
    if facts.clocksource is not None and facts.clocksource not in (
        "tsc",
        "kvm-clock",
        "arch_sys_counter",
        "hyperv_clocksource_tsc_page",
    ):
        do = (
            "boot with a TSC that the kernel trusts: reading the present "
            "clock takes microseconds, and telemetry does so often"
        )
        yield Finding("warn", "clock", f"`{facts.clocksource}`", do)
    if facts.skew is not None and abs(facts.skew) > SKEW:
        ahead = "ahead of" if facts.skew > 0 else "behind"
        do = "let both machines follow a time server: traces and deadlines are compared by their clocks"
        yield Finding("warn", "clocks", f"the service's is {abs(facts.skew):.0f} s {ahead} this machine's", do)


def _service(facts: Facts) -> Iterator[Finding]:
    if facts.service_problem is not None:
        yield Finding(
            "fail", "service", facts.service_problem, "see `walkgraph logs`; `walkgraph down`, then `walkgraph up`"
        )
    elif facts.running and facts.service is None:
        do = "wait a moment; if it stays like this, end the process that holds `lock` in the home"
        yield Finding("warn", "service", "a process holds this home but has not published an address yet", do)
    elif facts.service is not None:
        ready = bool(facts.service_ready)
        do = "" if ready else "`walkgraph status` shows why"
        yield Finding("ok" if ready else "warn", "service", f"{facts.service} {'ready' if ready else 'not ready'}", do)
    else:
        left = f" (process {facts.stale} died without cleaning up)" if facts.stale is not None else ""
        yield Finding("ok", "service", f"not running{left}: start it with `walkgraph up`")
        if facts.port_taken:
            do = "use `walkgraph up --port 0`, or set `WALKGRAPH_PORT`"
            yield Finding("warn", "port", f"another program listens on {facts.port}", do)
