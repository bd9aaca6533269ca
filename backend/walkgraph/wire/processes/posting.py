"""Posting: a worker's large values reach the service in files of memory, beside the messages that name them.

    worker   sealed file of memory ── Unix socket (SCM_RIGHTS) ──────────────> service, which maps it
             Emit(value=Posted) ── conductor ── Output(value=Posted) ────────> service

A file is sent before the message that names it, so it is there when that comes, and nobody has to answer: on its way it
is the kernel's, then the service's alone, and its memory is free with the last view of it. The files of outputs that
the conductor has dropped come too; they are given up with their run. If a file can't be sent, the value travels in its
message.
"""

import errno
import fcntl
import mmap
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from walkgraph.errors import WalkgraphError
from walkgraph.ids import RunId
from walkgraph.wire import messages as m

NAME = "post"
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


class Lost(WalkgraphError):
    """The file of a posted value did not come: a process could open no more files."""

    code = "worker_lost"
    retryable = True


class _Letter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message that is sent with a file."""

    run: RunId
    sender: str
    number: int


class PostSender:
    """A worker's side."""

    def __init__(self, directory: Path, sender: str) -> None:
        """`sender`: unique among the deployment's workers, past ones included."""
        self._path, self._sender = str(directory / NAME), sender
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
        except OSError:
            # Too many files, too little memory, or a full socket: none of them is the run's fault.
            return None
        self._number += 1
        return m.Posted(sender=self._sender, number=letter.number, nbytes=len(data), header=header)

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
    """The service's side, for one deployment's process. Nothing here waits."""

    def __init__(self, directory: Path) -> None:
        """Raises OSError if there can be no socket."""
        self._listener = socket.socket(
            socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        )
        path = directory / NAME
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

    def fetch(self, output: m.Output) -> m.Output:
        """The output with the bytes of its posted values. Raises Lost."""
        if not isinstance(output.value, m.Posted | m.Many | m.Named | m.Conversation):
            return output
        value = self._fetched(output.value)
        return output if value is output.value else msgspec.structs.replace(output, value=value)

    def forget(self, run: RunId) -> None:
        """Give up the files of a run that has ended: no message will name them."""
        self._collect()
        for key in [key for key, arrived in self._arrived.items() if arrived.run == run]:
            os.close(self._arrived.pop(key).file)

    def close(self) -> None:
        for one in (self._listener, *self._senders):
            one.close()
        for arrived in self._arrived.values():
            os.close(arrived.file)
        self._arrived.clear()

    def _fetched(self, value: m.Value) -> m.Value:
        match value:
            case m.Posted():
                return self._opened(value)
            case m.Many():
                return m.Many(items=tuple(map(self._fetched, value.items)))
            case m.Named():
                return m.Named(items={name: self._fetched(item) for name, item in value.items.items()})
            case m.Conversation():
                return msgspec.structs.replace(value, turns=tuple(map(self._turn, value.turns)))
            case _:
                return value

    def _turn(self, turn: m.Turn) -> m.Turn:
        parts = tuple(msgspec.structs.replace(part, value=self._fetched(part.value)) for part in turn.parts)
        return msgspec.structs.replace(turn, parts=parts)

    def _opened(self, value: m.Posted) -> m.Value:
        key = value.sender, value.number
        if key not in self._arrived:
            self._collect()
        found = self._arrived.pop(key, None)
        if found is None:
            raise Lost("a value of the run was lost on its way from the worker; send the request again")
        try:
            if os.fstat(found.file).st_size != value.nbytes or fcntl.fcntl(found.file, fcntl.F_GET_SEALS) != _SEALED:
                raise Lost("a value of the run is not the one that its worker named; send the request again")
            if value.header is None:
                return m.Blob(data=_read(found.file, value.nbytes))
            data = _mapped(found.file, value.nbytes) if value.nbytes >= MAP_BYTES else _read(found.file, value.nbytes)
        finally:
            os.close(found.file)
        # A view has all that readers of `bytes` use: its length, slices, the buffer.
        return m.InlineTensor(dtype=value.header.dtype, shape=value.header.shape, data=cast("bytes", data))

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


def _mapped(file: int, nbytes: int) -> Any:
    """A read-only view of the file; its bytes if this process can have no more maps."""
    try:
        return memoryview(mmap.mmap(file, nbytes, prot=mmap.PROT_READ))
    except OSError:
        return _read(file, nbytes)


def _read(file: int, nbytes: int) -> bytes:
    with closing(os.fdopen(os.dup(file), "rb", buffering=0)) as opened:
        opened.seek(0)
        return opened.read(nbytes)
