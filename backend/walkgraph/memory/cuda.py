"""Memory of an NVIDIA GPU through CUDA IPC, allocated by the runtime itself, so that a handle covers exactly one block.

torch's allocator places many tensors in one allocation, and a handle would open all of it.
"""

import contextlib
import ctypes
import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walkgraph.memory.device import Mark, Unavailable

HANDLE_BYTES = 64
GRAIN = 2 << 20
"""The driver serves smaller requests from shared blocks, and a handle opens a whole block."""
_OUT_OF_MEMORY = 2
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    """Passed by value."""

    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


class CudaMemory:
    def __init__(self, device: torch.device) -> None:
        """Raises Unavailable if torch doesn't see that GPU."""
        if not torch.cuda.is_available() or device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count():
            raise Unavailable(f"there is no `{device}` here")
        self.device = torch.device("cuda", device.index or 0)
        self._runtime = _runtime()
        self._out, self._in = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)

    def allocate(self, nbytes: int) -> Tensor:
        if not nbytes:
            return torch.empty(0, dtype=torch.uint8, device=self.device)
        size, address = -(-nbytes // GRAIN) * GRAIN, ctypes.c_void_p()
        code = self._call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(size))
        if code == _OUT_OF_MEMORY:
            raise torch.OutOfMemoryError(f"`{self.device}` has no {size} bytes left to share")
        memory = _view(_sound(code, address), nbytes, self.device)
        memory.zero_()
        # Other processes read and write it on their own streams.
        torch.cuda.current_stream(self.device).synchronize()
        return memory

    def release(self, memory: Tensor) -> None:
        if memory.nbytes:
            self._call("cudaFree", ctypes.c_void_p(memory.data_ptr()))

    def share(self, memory: Tensor) -> bytes:
        handle = _Handle()
        code = self._call("cudaIpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(memory.data_ptr()))
        _sound(code, None)
        return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)

    def open(self, handle: bytes, nbytes: int) -> Tensor:
        if len(handle) != HANDLE_BYTES:
            raise Unavailable("a handle of device memory is not one of CUDA's")
        opened, address = _Handle.from_buffer_copy(handle), ctypes.c_void_p()
        code = self._call("cudaIpcOpenMemHandle", ctypes.byref(address), opened, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return _view(_sound(code, address), nbytes, self.device)

    def shut(self, memory: Tensor) -> None:
        self._call("cudaIpcCloseMemHandle", ctypes.c_void_p(memory.data_ptr()))

    def copy_out(self, source: Tensor, target: Tensor) -> Mark:
        self._out.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._out):
            target.copy_(source, non_blocking=True)
            return _marked(self._out)

    def copy_in(self, source: Tensor) -> tuple[Tensor, Mark]:
        reader = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._in):
            copy = source.clone()
            mark = _marked(self._in)
        reader.wait_event(mark)
        # The allocator must not reuse this memory for another copy while the reader still uses it.
        copy.record_stream(reader)
        return copy, mark

    def _call(self, name: str, *arguments: Any) -> int:
        with torch.cuda.device(self.device):
            code = int(getattr(self._runtime, name)(*arguments))
            if code:
                # Otherwise the runtime would report the error to the next caller, which is torch.
                self._runtime.cudaGetLastError()
            return code


def _marked(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record(stream)
    return event


def _sound(code: int, address: ctypes.c_void_p | None) -> int:
    if code:
        raise Unavailable(f"CUDA doesn't share device memory here (error {code})")
    return (address.value or 0) if address is not None else 0


def _view(address: int, nbytes: int, device: torch.device) -> Tensor:
    """A view of memory that isn't torch's, labelled as of `device`. With a peer's own device, torch would work on the
    GPU that holds the memory, in a context that this process may lack."""
    storage = torch._C._construct_storage_from_data_pointer(address, device, nbytes)
    return torch.empty(0, dtype=torch.uint8, device=device).set_(storage)


@functools.cache
def _runtime() -> ctypes.CDLL:
    """The CUDA runtime that torch has loaded, and no other."""
    torch.cuda.init()
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        path = line.partition("/")[2]
        if "libcudart" in path:
            with contextlib.suppress(OSError):
                return ctypes.CDLL(f"/{path}")
    raise Unavailable("torch has not loaded CUDA's runtime as a library")
