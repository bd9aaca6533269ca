"""Posting: large values go between the service and a worker in files of memory, beside the messages that name them.

    worker   sealed file of memory ── Unix socket (SCM_RIGHTS) ──────────────> service, which maps it
             Emit(value=Posted) ── conductor ── Output(value=Posted) ────────> service
             CallTask(value=Posted) ── conductor ── CallTask(value=Posted) ──> service
    service  sealed file of memory ── Unix socket (SCM_RIGHTS) ──────────────> worker, which maps it
             TaskAnswer(outputs=Posted) ── conductor ── TaskAnswer ──────────> worker
    service  sealed file of memory ── conductor, which never reads it ───────> workers of the run
             Submit(inputs=Posted) ── conductor ── Start(inputs=Posted) ─────> workers of the run

A file is sent before the message that names it, so it is there when that comes, and nobody has to answer: on its way it
is the kernel's, then the receiver's alone, and its memory is free with the last view of it. A worker lends its files
instead while it works (`lending.py`): they come back with the last view. The files of messages that the conductor has
dropped come too; they are given up with their run. If a file can't be sent, the value travels in its message.
"""

import errno
import fcntl
import mmap
import os
import socket
import struct
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from walkgraph.errors import WalkgraphError
from walkgraph.ids import Rank, RunId
from walkgraph.wire import messages as m
from walkgraph.wire.processes.lending import SIZED, LentFiles
from walkgraph.wire.values import leaves_changed

SERVICE = "post"
"""The service's socket in a deployment's directory."""
CONDUCTOR = "post-conductor"
"""The conductor's."""
POST_BYTES = 64 * 1024
"""Values from this size on are posted; a smaller one is cheaper in its message."""
MAP_BYTES = 128 * 1024
"""Tensors from this size on are mapped. Smaller ones are read: a process may have some 65,000 maps."""
EARLY_SECONDS = 60.0
"""A message comes at most this long after its files."""
_LETTER_BYTES = 4096
_BACKLOG = 256
_NUMBER = struct.Struct("<Q")
_MOST_NUMBERS = _LETTER_BYTES // _NUMBER.size
_SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
"""Nobody can change the file any more, so that a view of it is constant and never beyond its end."""

Bytes = bytes | memoryview
Told = TypeVar("Told", bound=m.Output | m.CallTask)


class Lost(WalkgraphError):
    """The file of a posted value did not come: a process could open no more files."""

    code = "worker_lost"
    retryable = True


class Letter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The message that is sent with a file."""

    run: RunId
    sender: str
    number: int
    lent: bool = False
    """The sender wants to know, by the number, when the file is no longer used."""


def rank_office(rank: Rank) -> str:
    """The socket of a rank's worker in its deployment's directory."""
    return f"{SERVICE}{rank}"


class PostSender:
    """The side of the process that has the values."""

    def __init__(self, path: Path, sender: str, lent: LentFiles | None = None) -> None:
        """`path`: the receiver's socket. `sender`: unique among all that send there, past ones included. `lent`: lends
        the files; without it each is the receiver's for good."""
        self._path, self._sender, self._lent = str(path), sender, lent
        self._socket: socket.socket | None = None
        self.count = 0
        """The number of values that it has posted."""

    def post(self, run: RunId, data: Bytes, header: m.TensorHeader | None = None) -> m.Posted | None:
        """Send the bytes of a value of this run; None if they can't be sent now. `header`: a tensor's."""
        number = self.count + 1
        try:
            if not self._sent(run, number, data):
                return None
        except OSError:
            # Too many files or too little memory is not the run's fault.
            return None
        self.count = number
        return m.Posted(sender=self._sender, number=number, nbytes=len(data), header=header)

    def _sent(self, run: RunId, number: int, data: Bytes) -> bool:
        """Send the bytes in a file, lent if one can be. Raises OSError if there can be no file."""
        if self._lent is not None:
            self._take_back(self._lent)
            lent = self._lent.lend(number, data)
            if lent is not None:
                sent = self.pass_on(Letter(run=run, sender=self._sender, number=number, lent=True), lent)
                if not sent:
                    self._lent.give_back(number)
                return sent
        file = _sealed(data)
        try:
            return self.pass_on(Letter(run=run, sender=self._sender, number=number), file)
        finally:
            os.close(file)

    def _take_back(self, lent: LentFiles) -> None:
        """Take in the numbers of the files that are no longer used."""
        while self._socket is not None:
            try:
                told = self._socket.recv(_LETTER_BYTES)
            except OSError:
                return
            if not told:
                return
            for (number,) in _NUMBER.iter_unpack(told):
                lent.give_back(number)

    def pass_on(self, letter: Letter, file: int) -> bool:
        """Send a file, which stays open here; False if it can't be sent now."""
        try:
            socket.send_fds(self._connected(), [msgspec.msgpack.encode(letter)], [file])
        except OSError as error:
            # A full socket, or a receiver that has ended. One that is started again has another socket.
            if isinstance(error, ConnectionError):
                self.close()
            return False
        return True

    def moved(self, run: RunId, value: m.Value) -> m.Value:
        """The value, with what is large in it posted. What can't be posted now stays as it is."""

        def posted(leaf: m.Value) -> m.Value:
            if not isinstance(leaf, m.Blob | m.InlineTensor) or len(leaf.data) < POST_BYTES:
                return leaf
            header = m.TensorHeader(dtype=leaf.dtype, shape=leaf.shape) if isinstance(leaf, m.InlineTensor) else None
            return self.post(run, leaf.data, header) or leaf

        return leaves_changed(value, posted)

    def answer(self, message: m.TaskPiece | m.TaskAnswer) -> m.TaskPiece | m.TaskAnswer:
        """The answer to a call of a task, with its large values posted."""
        run = message.run
        if isinstance(message, m.TaskPiece):
            return msgspec.structs.replace(message, value=self.moved(run, message.value))
        outputs = {name: self.moved(run, value) for name, value in message.outputs.items()}
        return msgspec.structs.replace(message, outputs=outputs)

    def request(self, message: m.Submit) -> m.Submit:
        """A request, with its large values posted."""
        run, before = message.run, self.count
        inputs = {name: tuple(self.moved(run, value) for value in given) for name, given in message.inputs.items()}
        parts = tuple(m.Part(modality=part.modality, value=self.moved(run, part.value)) for part in message.parts)
        if self.count == before:
            return message
        return msgspec.structs.replace(message, inputs=inputs, parts=parts)

    def rest(self) -> None:
        """Keep no memory while there is nothing to send."""
        if self._lent is not None:
            self._lent.forget()

    def close(self) -> None:
        self.rest()
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


class _Connection:
    """A sender's connection, and the numbers of its lent files that are no longer used here, which it doesn't know yet.
    Any thread may add one."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.unused: deque[int] = deque()

    def tell(self) -> None:
        """Tell the sender what its socket has room for."""
        while self.unused:
            some = [self.unused.popleft() for _ in range(min(len(self.unused), _MOST_NUMBERS))]
            try:
                self.socket.send(b"".join(map(_NUMBER.pack, some)))
            except BlockingIOError:
                self.unused.extendleft(reversed(some))
                return
            except OSError:
                self.unused.clear()


class _Arrived(NamedTuple):
    run: RunId
    file: int
    at: float
    unused: Callable[[], None] | None
    """Notes that a lent file is no longer used; None for one that is given."""

    def give_up(self) -> None:
        os.close(self.file)
        if self.unused is not None:
            self.unused()


class PostOffice:
    """The receiver's side. Nothing here waits."""

    def __init__(self, path: Path, *, private: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        """`path`: of its socket. `private`: tensors may be written to, which changes this process's memory alone.
        Raises OSError if there can be no socket."""
        self._private, self._clock = private, clock
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
        self._senders: list[_Connection] = []
        self._arrived: dict[tuple[str, int], _Arrived] = {}
        """Files that no message has named yet."""
        self.rejected = 0
        """Letters that no worker writes."""

    def fetch(self, message: Told) -> Told:
        """The message with the bytes of its posted values. Raises Lost."""
        value = self._fetched(message.value)
        return message if value is message.value else msgspec.structs.replace(message, value=value)

    def forget(self, run: str) -> None:
        """Give up the files of a run that has ended: no message will name them."""
        self._give_up(lambda arrived: arrived.run == run)

    def forget_all_but(self, run: str, others: Collection[str]) -> None:
        """Give up the files of a run that has ended, and of all that aren't known but these `others`. A file that came
        within `EARLY_SECONDS` may be of a run whose first message is still on its way."""
        late = self._clock() - EARLY_SECONDS
        self._give_up(lambda arrived: arrived.run == run or (arrived.at < late and arrived.run not in others))

    def close(self) -> None:
        for one in (self._listener, *(sender.socket for sender in self._senders)):
            one.close()
        for arrived in self._arrived.values():
            arrived.give_up()
        self._arrived.clear()

    def _give_up(self, chosen: Callable[[_Arrived], bool]) -> None:
        self._collect()
        for key in [key for key, arrived in self._arrived.items() if chosen(arrived)]:
            self._arrived.pop(key).give_up()
        self._tell()

    def _fetched(self, value: m.Value) -> m.Value:
        return leaves_changed(value, lambda leaf: self.opened(leaf) if isinstance(leaf, m.Posted) else leaf)

    def opened(self, value: m.Posted) -> m.Blob | m.InlineTensor:
        """The value with its bytes; its file is given up. Raises Lost."""
        kept = False
        try:
            shown = self.shown(value)
            found = self._arrived[value.sender, value.number]
            data = cast("Bytes", shown.data)
            if found.unused is not None and isinstance(data, memoryview):
                # The views of a map refer to it. A process that ends tells nobody.
                weakref.finalize(cast("mmap.mmap", data.obj), found.unused).atexit = False
                kept = True
            return shown
        finally:
            arrived = self._arrived.pop((value.sender, value.number), None)
            if arrived is not None:
                (arrived._replace(unused=None) if kept else arrived).give_up()

    def file(self, value: m.Posted) -> int:
        """The value's file, which stays here. Raises Lost."""
        key = value.sender, value.number
        if key not in self._arrived:
            self._collect()
        if key not in self._arrived:
            raise Lost("a value of the run was lost on its way between processes; send the request again")
        return self._arrived[key].file

    def shown(self, value: m.Posted) -> m.Blob | m.InlineTensor:
        """The value with its bytes; its file stays here. Raises Lost."""
        file = self.file(value)
        size, seals = os.fstat(file).st_size, fcntl.fcntl(file, fcntl.F_GET_SEALS)
        lent = self._arrived[value.sender, value.number].unused is not None
        if not (size >= value.nbytes and seals == SIZED if lent else size == value.nbytes and seals == _SEALED):
            raise Lost("a value of the run is not the one that its sender named; send the request again")
        if value.header is None:
            return m.Blob(data=_read(file, value.nbytes))
        data = self._mapped(file, value.nbytes) if value.nbytes >= MAP_BYTES else _read(file, value.nbytes)
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
                self._senders.append(_Connection(self._listener.accept()[0]))
            except OSError:
                # None waits, or there are too many files; those that wait are taken in later.
                break
            self._senders[-1].socket.setblocking(False)
        for sender in tuple(self._senders):
            for key, arrived in self._received(sender):
                if key in self._arrived:
                    self._arrived[key].give_up()
                self._arrived[key] = arrived

    def _tell(self) -> None:
        for sender in self._senders:
            sender.tell()

    def _received(self, sender: _Connection) -> Iterator[tuple[tuple[str, int], _Arrived]]:
        while True:
            try:
                content, files, _, _ = socket.recv_fds(sender.socket, _LETTER_BYTES, 1)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR):
                    content, files = b"", []
                else:
                    return
            if not content:
                sender.socket.close()
                self._senders.remove(sender)
                return
            try:
                letter = msgspec.msgpack.decode(content, type=Letter)
            except msgspec.MsgspecError:
                self.rejected += 1
                for file in files:
                    os.close(file)
                continue
            # Without a file, this process could open no more: the value is lost when a message names it.
            if files:
                unused = partial(sender.unused.append, letter.number) if letter.lent else None
                yield (letter.sender, letter.number), _Arrived(letter.run, files[0], self._clock(), unused)


class WorkerPost:
    """A worker's ways for large values, to the service and from it."""

    def __init__(self, directory: Path, rank: Rank, start: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`start`: of the rank's starts. Raises OSError if there can be no socket."""
        self.sender = PostSender(directory / SERVICE, f"{rank}.{start}", LentFiles())
        self.office = PostOffice(directory / rank_office(rank), private=True, clock=clock)
        self._runs: set[str] = set()

    def expect(self, run: str) -> None:
        """Note that files may come for a run, until it is forgotten."""
        self._runs.add(run)

    def opener(self, run: str) -> Callable[[m.Posted], m.Value]:
        """Opens the posted values of one message about a run. Raises Lost."""
        found: dict[tuple[str, int], m.Value] = {}

        def opened(value: m.Posted) -> m.Value:
            # A part of a conversation has a name of its own too.
            key = value.sender, value.number
            if key not in found:
                self.expect(run)
                found[key] = self.office.opened(value)
            return found[key]

        return opened

    def close(self) -> None:
        self.sender.close()
        self.office.close()

    def forget(self, run: str) -> None:
        """Give up the files of a run that is over. Some may come later; they are given up with a later run."""
        if run in self._runs:
            self._runs.remove(run)
            self.office.forget_all_but(run, self._runs)


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
    # Processes that have the same file share its position.
    pieces: list[bytes] = []
    left = nbytes
    while left and (more := os.pread(file, left, nbytes - left)):
        pieces.append(more)
        left -= len(more)
    # One piece is nearly always all, and joining it copies nothing.
    return b"".join(pieces)
