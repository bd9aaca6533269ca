"""CUDA C++ that is compiled at its first use, for the GPU at hand, by NVIDIA's run-time compiler; Triton's cache keeps
the result. The `cuda-bindings` package and the compiler come with PyTorch for CUDA."""

import ctypes
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

HEADERS = tuple(Path(__file__).with_name(name) for name in ("common.cuh", "hopper.cuh"))
"""The headers that every source may include. A source may have others beside it."""


@cache
def is_available() -> bool:
    """True if sources can be compiled here."""
    try:
        version = import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except (ImportError, RuntimeError):  # no package, or no compiler that it could load
        return False
    return version[0].value == 0


class CudaKernel:
    """A kernel of the present device."""

    def __init__(self, source: Path, name: str, defined: Mapping[str, int | str], shared: int) -> None:
        """Compiles the kernel `name` with macros `defined`; `shared`: bytes of shared memory of a block.

        Raises RuntimeError with the compiler's report, or the driver's error."""
        self._driver: Any = import_module("cuda.bindings.driver")
        options = ["-std=c++17", f"-arch={_architecture()}", *(f"-D{key}={value}" for key, value in defined.items())]
        torch.cuda.current_stream().synchronize()  # makes the device's context the thread's
        self._module = self._checked(self._driver.cuModuleLoadData(_cubin(source, options)))
        self._function = self._checked(self._driver.cuModuleGetFunction(self._module, name.encode()))
        limit = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._checked(self._driver.cuFuncSetAttribute(self._function, limit, shared))
        self._shared = shared

    def blocks_at_once(self, threads: int) -> int:
        """The most blocks that the whole device runs at the same time."""
        asked = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self._function, threads, self._shared)
        return self._checked(asked) * torch.cuda.get_device_properties().multi_processor_count

    def clusters_at_once(self, blocks: int, threads: int) -> int:
        """The most clusters of so many blocks that the whole device runs at the same time."""
        cluster = self._driver.CUlaunchAttribute()
        cluster.id = self._driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = blocks, 1, 1
        config = self._config(blocks, threads, (cluster,))
        return self._checked(self._driver.cuOccupancyMaxActiveClusters(self._function, config))

    def launch(self, blocks: int, threads: int, arguments: ctypes.Structure) -> None:
        """Into the present stream, which may be capturing. `arguments`: the kernel's one parameter."""
        self._launch(blocks, threads, arguments, ())

    def launch_cooperatively(self, blocks: int, threads: int, arguments: ctypes.Structure) -> None:
        """As `launch`, and the blocks run at the same time, so they may wait for each other."""
        cooperative = self._driver.CUlaunchAttribute()
        cooperative.id = self._driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        cooperative.value.cooperative = 1
        self._launch(blocks, threads, arguments, (cooperative,))

    def launch_early(self, blocks: int, threads: int, arguments: ctypes.Structure) -> None:
        """Launches like `launch`, but may begin while the launch before it ends, for which the kernel waits itself."""
        early = self._driver.CUlaunchAttribute()
        early.id = self._driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        self._launch(blocks, threads, arguments, (early,))

    def _launch(self, blocks: int, threads: int, arguments: ctypes.Structure, attributes: Sequence[Any]) -> None:
        config = self._config(blocks, threads, attributes)
        config.hStream = torch.cuda.current_stream().cuda_stream
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        self._checked(self._driver.cuLaunchKernelEx(config, self._function, ctypes.addressof(parameters), 0))

    def _config(self, blocks: int, threads: int, attributes: Sequence[Any]) -> Any:
        config = self._driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = self._shared
        config.attrs, config.numAttrs = list(attributes), len(attributes)
        return config

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        error, *values = answer
        if error.value:
            raise RuntimeError(f"CUDA: {error.name}")
        return values[0] if values else None


def _architecture() -> str:
    major, minor = torch.cuda.get_device_capability()
    # From Hopper on, a chip's own instructions need its own target.
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def headers_of(source: Path) -> tuple[Path, ...]:
    """`HEADERS`, and those beside the source that it includes."""
    beside = (source.with_name(name) for name in re.findall(r'^#include "(.+)"', source.read_text(), re.MULTILINE))
    return (*HEADERS, *(one for one in beside if one.exists()))


def _cubin(source: Path, options: Sequence[str]) -> bytes:
    from triton.runtime.cache import get_cache_manager

    text, headers = source.read_text(), headers_of(source)
    parts = (text, *(header.read_text() for header in headers), *options, str(torch.version.cuda))
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    cache = get_cache_manager(key)
    if (kept := cache.get_file("kernel.cubin")) is not None:
        return Path(kept).read_bytes()
    made = compiled(text, options, headers)
    cache.put(made, "kernel.cubin", binary=True)
    return made


def compiled(source: str, options: Sequence[str], headers: Sequence[Path] = HEADERS) -> bytes:
    """A cubin; needs no GPU. Raises RuntimeError with the compiler's report."""
    nvrtc: Any = import_module("cuda.bindings.nvrtc")

    def checked(answer: tuple[Any, ...]) -> Any:
        error, *values = answer
        if error.value:
            raise RuntimeError(f"NVRTC: {error.name}")
        return values[0] if values else None

    included, names = [header.read_bytes() for header in headers], [header.name.encode() for header in headers]
    program = checked(nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", len(included), included, names))
    try:
        (outcome,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        if outcome.value:
            report = bytearray(checked(nvrtc.nvrtcGetProgramLogSize(program)))
            checked(nvrtc.nvrtcGetProgramLog(program, report))
            raise RuntimeError(bytes(report).decode(errors="replace").strip("\0\n"))
        cubin = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
        checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return bytes(cubin)
    finally:
        checked(nvrtc.nvrtcDestroyProgram(program))
