"""Posting: large values go between the service and a worker in files of memory, beside the messages that name them.

    worker   sealed file of memory ── Unix socket (SCM_RIGHTS) ──────────────> service, which maps it
             Emit(value=Posted) ── conductor ── Output(value=Posted) ────────> service
             CallTask(value=Posted) ── conductor ── CallTask(value=Posted) ──> service
    service  sealed file of memory ── Unix socket (SCM_RIGHTS) ──────────────> worker, which maps it
             TaskAnswer(outputs=Posted) ── conductor ── TaskAnswer ──────────> worker

A file is sent before the message that names it, so it is there when that comes, and nobody has to answer: on its way it
is the kernel's, then the receiver's alone, and its memory is free with the last view of it. The files of messages that
the conductor has dropped come too; they are given up with their run. If a file can't be sent, the value travels in its
message.
"""

import errno
import fcntl
import mmap
import os
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from walkgraph.errors import WalkgraphError
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.values import leaves_changed

SERVICE = "post"
"""The service's socket in a deployment's directory."""
POST_BYTES = 64 * 1024
"""Values from this size on are posted; a smaller one is cheaper in its message."""
MAP_BYTES = 1024 * 1024
"""Tensors from this size on are mapped. Smaller ones are read: a process may have some 65,000 maps."""
_LETTER_BYTES = 4096
_BACKLOG = 256
_SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
"""Nobody can change the file any more, so that a view of it is constant and never beyond its end."""

Bytes = bytes | memoryview
Told = TypeVar("Told", bound=m.Output | m.CallTask)


class Lost(WalkgraphError):
    """The file of a posted value did not come: a process could open no more files."""

    code = "worker_lost"
    retryable = True


class _Letter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message that is sent with a file."""

    run: RunId
    sender: str
    number: int


def rank_office(rank: Rank) -> str:
    """The socket of a rank's worker in its deployment's directory."""
    return f"{SERVICE}{rank}"


class PostSender:
    """The side of the process that has the values."""

    def __init__(self, path: Path, sender: str) -> None:
        """`path`: the receiver's socket. `sender`: unique among all that send there, past ones included."""
        self._path, self._sender = str(path), sender
        self._socket: socket.socket | None = None
        self._number = 0

    def post(self, run: RunId, data: Bytes, header: m.TensorHeader | None = None) -> m.Posted | None:
        """Send the bytes of a value of this run; None if they can't be sent now. `header`: a tensor's."""
        letter = _Letter(run=run, sender=self._sender, number=self._number + 1)
        try:
            file = _sealed(data)
            try:
                socket.send_fds(self._connected(), [msgspec.msgpack.encode(letter)], [file])
            finally:
                os.close(file)
        except OSError as error:
            # Too many files, too little memory, a full socket, or a receiver that has ended: none of them is the run's
            # fault. A receiver that is started again has another socket.
            if isinstance(error, ConnectionError):
                self.close()
            return None
        self._number += 1
        return m.Posted(sender=self._sender, number=letter.number, nbytes=len(data), header=header)

    def answer(self, message: m.TaskPiece | m.TaskAnswer) -> m.TaskPiece | m.TaskAnswer:
        """The answer to a call of a task, with its large values posted."""

        def moved(leaf: m.Value) -> m.Value:
            match leaf:
                case m.Blob(data=data) if len(data) >= POST_BYTES:
                    return self.post(message.run, data) or leaf
                case m.InlineTensor(data=data) if len(data) >= POST_BYTES:
                    header = m.TensorHeader(dtype=leaf.dtype, shape=leaf.shape)
                    return self.post(message.run, data, header) or leaf
                case _:
                    return leaf

        if isinstance(message, m.TaskPiece):
            return msgspec.structs.replace(message, value=leaves_changed(message.value, moved))
        outputs = {name: leaves_changed(value, moved) for name, value in message.outputs.items()}
        return msgspec.structs.replace(message, outputs=outputs)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            try:
                made.connect(self._path)
            except OSError:
                made.close()
                raise
            self._socket = made
        return self._socket


class _Arrived(NamedTuple):
    run: RunId
    file: int


class PostOffice:
    """The receiver's side. Nothing here waits."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """`path`: of its socket. `private`: tensors may be written to, which changes this process's memory alone.
        Raises OSError if there can be no socket."""
        self._private = private
        self._listener = socket.socket(
            socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        path.unlink(missing_ok=True)
        try:
            self._listener.bind(str(path))
            path.chmod(0o600)
            self._listener.listen(_BACKLOG)
        except OSError:
            self._listener.close()
            raise
        self._senders: list[socket.socket] = []
        self._arrived: dict[tuple[str, int], _Arrived] = {}
        """Files that no message has named yet."""
        self.rejected = 0
        """Letters that no worker writes."""

    def fetch(self, message: Told) -> Told:
        """The message with the bytes of its posted values. Raises Lost."""
        value = self._fetched(message.value)
        return message if value is message.value else msgspec.structs.replace(message, value=value)

    def forget(self, run: RunId) -> None:
        """Give up the files of a run that has ended: no message will name them."""
        self._give_up(lambda other: other == run)

    def keep(self, runs: Collection[str]) -> None:
        """Give up the files of all runs but these."""
        self._give_up(lambda run: run not in runs)

    def close(self) -> None:
        for one in (self._listener, *self._senders):
            one.close()
        for arrived in self._arrived.values():
            os.close(arrived.file)
        self._arrived.clear()

    def _give_up(self, chosen: Callable[[RunId], bool]) -> None:
        self._collect()
        for key in [key for key, arrived in self._arrived.items() if chosen(arrived.run)]:
            os.close(self._arrived.pop(key).file)

    def _fetched(self, value: m.Value) -> m.Value:
        return leaves_changed(value, lambda leaf: self.opened(leaf) if isinstance(leaf, m.Posted) else leaf)

    def opened(self, value: m.Posted) -> m.Blob | m.InlineTensor:
        """The value with its bytes. Raises Lost."""
        key = value.sender, value.number
        if key not in self._arrived:
            self._collect()
        found = self._arrived.pop(key, None)
        if found is None:
            raise Lost("a value of the run was lost on its way between processes; send the request again")
        try:
            if os.fstat(found.file).st_size != value.nbytes or fcntl.fcntl(found.file, fcntl.F_GET_SEALS) != _SEALED:
                raise Lost("a value of the run is not the one that its sender named; send the request again")
            if value.header is None:
                return m.Blob(data=_read(found.file, value.nbytes))
            mapped = value.nbytes >= MAP_BYTES
            data = self._mapped(found.file, value.nbytes) if mapped else _read(found.file, value.nbytes)
        finally:
            os.close(found.file)
        # A view has all that readers of `bytes` use: its length, slices, the buffer.
        return m.InlineTensor(dtype=value.header.dtype, shape=value.header.shape, data=cast("bytes", data))

    def _mapped(self, file: int, nbytes: int) -> Any:
        """A view of the file; its bytes if this process can have no more maps."""
        way = mmap.MAP_PRIVATE if self._private else mmap.MAP_SHARED
        allowed = mmap.PROT_READ | mmap.PROT_WRITE if self._private else mmap.PROT_READ
        try:
            return memoryview(mmap.mmap(file, nbytes, way, allowed))
        except OSError:
            return _read(file, nbytes)

    def _collect(self) -> None:
        """Take in all files that have come."""
        while True:
            try:
                self._senders.append(self._listener.accept()[0])
            except OSError:
                # None waits, or there are too many files; those that wait are taken in later.
                break
            self._senders[-1].setblocking(False)
        for sender in tuple(self._senders):
            self._arrived |= self._received(sender)

    def _received(self, sender: socket.socket) -> Iterator[tuple[tuple[str, int], _Arrived]]:
        while True:
            try:
                content, files, _, _ = socket.recv_fds(sender, _LETTER_BYTES, 1)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    content, files = b"", []
                else:
                    return
            if not content:
                sender.close()
                self._senders.remove(sender)
                return
            try:
                letter = msgspec.msgpack.decode(content, type=_Letter)
            except msgspec.MsgspecError:
                self.rejected += 1
                for file in files:
                    os.close(file)
                continue
            # Without a file, this process could open no more: the value is lost when a message names it.
            if files:
                yield (letter.sender, letter.number), _Arrived(letter.run, files[0])


class WorkerPost(NamedTuple):
    """A worker's ways for large values."""

    sender: PostSender
    """To the service."""
    office: PostOffice
    """From it."""

    @classmethod
    def of(cls, directory: Path, rank: Rank, start: int) -> "WorkerPost":
        """Those of a start of a rank. Raises OSError if there can be no socket."""
        sender = PostSender(directory / SERVICE, f"{rank}.{start}")
        return cls(sender, PostOffice(directory / rank_office(rank), private=True))


def _sealed(data: Bytes) -> int:
    """A file of memory with these bytes that nobody can change. Raises OSError."""
    file = os.memfd_create("walkgraph-post", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALED)
    except OSError:
        os.close(file)
        raise
    return file


def _read(file: int, nbytes: int) -> bytes:
    with closing(os.fdopen(os.dup(file), "rb", buffering=0)) as opened:
        opened.seek(0)
        return opened.read(nbytes)
