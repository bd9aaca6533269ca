"""A driver for Triton of a GPU that isn't there: kernels are compiled for it and loaded, and launches do nothing."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from walkgraph.layers.kernels.gpu import Gpu

_THREADS = 1024
"""The most threads of a block."""
_DUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


class Usage(NamedTuple):
    """The resources that a kernel takes."""

    shared: int
    """Bytes of a block's shared memory."""
    registers: int
    """Registers of a thread."""
    local: int
    """Bytes of a thread's own memory, where what has no register goes."""


class Imagined(DriverBase):
    """Triton itself refuses what doesn't fit: it compares a kernel with this driver's figures when it is loaded."""

    def __init__(self, gpu: Gpu, number: int) -> None:
        """`number`: tells several GPUs of a process apart, for which Triton keeps kernels separately."""
        super().__init__()
        self.gpu, self.number = gpu, number
        self.utils = self
        self.loaded: Usage | None = None
        """The usage of the last kernel that was loaded."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError("nothing is launched")

    def get_current_target(self) -> GPUTarget:
        major, minor = self.gpu.capability
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self) -> Any:
        raise NotImplementedError("there is no device")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing is launched")

    def get_current_device(self) -> int:
        return self.number

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": self.gpu.shared, "multiprocessor_count": self.gpu.processors}

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, ...]:
        registers, local = _resources(binary)
        self.loaded = Usage(shared, registers, local)
        return None, None, registers, local, _THREADS

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        return lambda *arguments: None


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of local memory of a cubin's kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run([_DUMP, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+)", told.stdout)
    if found is None:
        raise ValueError(f"no usage in {told.stdout!r}")
    return int(found[1]), int(found[2])
