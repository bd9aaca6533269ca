"""A group of processes of one host that compute on its CPUs: parts go through shared memory, news through pipes.

Each shard has one region of shared memory with two halves, which the others map read-only. For a chunk of a tensor it
writes its part into a half, and then its number into a pipe to each of the others; a number that arrives says that the
sender's part is there. Halves alternate: who begins chunk n + 2 has the numbers of chunk n + 1, and nobody sends those
before chunk n is read.

    shard 0  | token .. | part n | part n + 1 |       0 ══n═> 1     named pipes, one for each pair and direction,
    shard 1  | token .. | part n | part n + 1 |       1 ══n═> 0     removed once both ends are open

The kernel closes a dead process's end of its pipes, which ends the others' wait.
"""

import os
import select
import struct
from collections.abc import Iterator
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from walkgraph.collectives.base import OutOfStep, ShardLost, added_up, side_by_side
from walkgraph.memory.tensors import DTYPES, copy_into, tensor_of
from walkgraph.transports.base import ALIGN, TOKEN_BYTES, FileHandle, MemoryFile, SenderLost, dtype_name, open_file

REGION_BYTES = 8 << 20
"""Memory that a shard shares: a layer's output for a prompt of a thousand tokens fits into a half of it."""
PATIENCE = 60.0
"""Seconds to wait for another shard, which may compile kernels meanwhile."""
_SUM, _GATHER = range(2)
_KINDS = list(DTYPES)
_HELLO = struct.Struct(f"<QQQ{TOKEN_BYTES}s")
"""A shard's memory: process id, file descriptor, bytes, token."""
_NEWS = struct.Struct("<QBBQ")
"""A part is there: the chunk's number, the collective, the dtype, the part's bytes."""


class _Peer(NamedTuple):
    news: int
    """The end of the pipe from it."""
    told: int
    """The end of the pipe to it."""


class HostShard:
    def __init__(
        self, at: Path, index: int, count: int, *, nbytes: int = REGION_BYTES, patience: float = PATIENCE
    ) -> None:
        """Join the group at `at`, a path in a folder of this user alone, of which there is no other at a time. Waits
        for all shards. `nbytes`: of the region of shared memory, equal on all shards; `patience`: seconds to wait for
        another shard. Raises ShardLost."""
        self.index, self.count, self._patience = index, count, patience
        self._half = (nbytes - ALIGN) // 2 // ALIGN * ALIGN
        self._chunks, self._open = 0, True
        self._file = MemoryFile(nbytes, "walkgraph-shard")
        self._peers: dict[int, _Peer] = {}
        self._memories: dict[int, mmap] = {}
        try:
            self._join(at)
        except BaseException:
            self.close()
            raise

    def sum(self, x: Tensor) -> Tensor:
        flat = x.contiguous().view(-1)
        out = torch.empty_like(flat)
        for start, stop, parts in self._exchanged(flat, _SUM):
            out[start:stop] = added_up(parts)
        return out.view(x.shape)

    def gather(self, x: Tensor, dim: int = -1) -> Tensor:
        flat = x.contiguous().view(-1)
        out = flat.new_empty(self.count, len(flat))
        for start, stop, parts in self._exchanged(flat, _GATHER):
            for row, part in zip(out, parts, strict=True):
                row[start:stop] = part
        return side_by_side(out.view(self.count, *x.shape), dim)

    def close(self) -> None:
        for memory in self._memories.values():
            memory.close()
        for peer in self._peers.values():
            os.close(peer.news)
            os.close(peer.told)
        if self._open:
            self._file.close()
        self._peers, self._memories, self._open = {}, {}, False

    def _join(self, at: Path) -> None:
        others = [other for other in range(self.count) if other != self.index]
        for other in others:
            self._peers[other] = _Peer(
                _opened(_pipe(at, other, self.index), os.O_RDONLY), _opened(_pipe(at, self.index, other), os.O_RDWR)
            )
        own = self._file.handle
        self._tell(_HELLO.pack(own.pid, own.fd, own.nbytes, own.token))
        for other in others:
            pid, fd, nbytes, token = _HELLO.unpack(self._heard(other, _HELLO.size))
            _pipe(at, other, self.index).unlink()
            if nbytes != own.nbytes:
                raise OutOfStep(f"shards {self.index} and {other} have {own.nbytes} and {nbytes} bytes to share")
            try:
                self._memories[other] = open_file(FileHandle(pid=pid, fd=fd, nbytes=nbytes, token=token))
            except SenderLost as lost:
                raise _gone(other) from lost

    def _exchanged(self, flat: Tensor, collective: int) -> Iterator[tuple[int, int, list[Tensor]]]:
        """(start, stop, the shards' parts in their order) for each chunk of `flat`."""
        if not self._open:
            raise ShardLost("this shard has left its group; start the group again")
        name, per = dtype_name(flat.dtype), self._half // flat.itemsize
        for start in range(0, len(flat), per):
            own = flat[start : start + per]
            try:
                yield start, start + len(own), self._parts(own, name, collective)
            except (ShardLost, OutOfStep):
                # A group without one of its shards can't go on: the others must not wait for this one.
                self.close()
                raise

    def _parts(self, own: Tensor, name: str, collective: int) -> list[Tensor]:
        offset = ALIGN + self._chunks % 2 * self._half
        copy_into(self._file.memory, offset, own)
        news = _NEWS.pack(self._chunks, collective, _KINDS.index(name), own.nbytes)
        self._chunks += 1
        self._tell(news)
        for other in self._peers:
            if self._heard(other, _NEWS.size) != news:
                raise OutOfStep(f"shards {self.index} and {other} of a group made different calls")
        return [
            own if shard == self.index else _part(self._memories[shard], offset, own, name)
            for shard in range(self.count)
        ]

    def _tell(self, news: bytes) -> None:
        for peer in self._peers.values():
            os.write(peer.told, news)

    def _heard(self, other: int, size: int) -> bytes:
        """The next `size` bytes of another shard, which it wrote at once."""
        waiting = select.poll()
        waiting.register(self._peers[other].news, select.POLLIN)
        if not waiting.poll(self._patience * 1000):
            raise ShardLost(f"shard {other} did not answer within {self._patience:g} s; its group has to start again")
        heard = os.read(self._peers[other].news, size)
        if not heard:
            raise _gone(other)
        return heard


def _gone(other: int) -> ShardLost:
    return ShardLost(f"shard {other} of a group was lost; the group is being started again, send the request again")


def _pipe(at: Path, source: int, target: int) -> Path:
    return at.with_name(f"{at.name}.{source}-{target}")


def _opened(pipe: Path, mode: int) -> int:
    """Open one end without waiting for the other. Who writes holds both, so that what it wrote outlives its wait; its
    death still ends the pipe, as only it writes there."""
    with suppress(FileExistsError):
        os.mkfifo(pipe, 0o600)
    return os.open(pipe, mode | os.O_NONBLOCK | os.O_CLOEXEC)


def _part(memory: mmap, offset: int, like: Tensor, name: str) -> Tensor:
    copy = np.frombuffer(memory, np.uint8, like.nbytes, offset).copy()
    return tensor_of(copy, name, tuple(like.shape))
