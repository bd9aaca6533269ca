"""Messages between a conductor and what starts its workers: the fork server, whose processes are forked once the slow
imports are done, or the actor server, which has them started on hosts of a cluster.

They travel over a SEQPACKET socket, one message a packet, with files beside it:

conductor -> server    Fork, with the files LIFELINE, OUTPUT; Kill
server -> conductor    Forked, with the file PIDFD where it is a process of this host; Exited
"""

import array
import socket

import msgspec

from walkgraph.wire.processes.host_network import Ports

LIFELINE, OUTPUT = 0, 1
"""Files of a `Fork`: a pipe whose other end only the conductor has, and what takes the standard outputs."""
FILES = 2
"""Most files of a message."""
_BYTES = 16 * 1024
"""Longest message."""


class Fork(msgspec.Struct, frozen=True, tag="fork", forbid_unknown_fields=True):
    """Start a worker."""

    directory: str
    """The deployment's folder."""
    rank: int
    start: int
    """Number of this start of the rank."""
    ports: Ports | None = None
    """Where a rank on another host finds its conductor."""


class Kill(msgspec.Struct, frozen=True, tag="kill", forbid_unknown_fields=True):
    """End a worker, if it hasn't ended yet; `Exited` tells it."""

    rank: int
    start: int


class Forked(msgspec.Struct, frozen=True, tag="forked", forbid_unknown_fields=True):
    """A worker was started, or could not be."""

    rank: int
    start: int
    pid: int
    """0 if it could not be started."""
    error: int = 0
    """The number of the system's error then."""


class Exited(msgspec.Struct, frozen=True, tag="exited", forbid_unknown_fields=True):
    rank: int
    start: int
    code: int
    """Exit status; negative for a signal."""


ToForkServer = Fork | Kill
FromForkServer = Forked | Exited
_encode = msgspec.msgpack.encode
_to_server: msgspec.msgpack.Decoder[ToForkServer] = msgspec.msgpack.Decoder(ToForkServer)
_from_server: msgspec.msgpack.Decoder[FromForkServer] = msgspec.msgpack.Decoder(FromForkServer)


def send(to: socket.socket, message: ToForkServer | FromForkServer, *files: int) -> None:
    """Raises OSError, BlockingIOError among them."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    to.sendmsg([_encode(message)], rights)


def receive_order(of: socket.socket) -> tuple[ToForkServer, list[int]] | None:
    """The next message and its files, or None at the end. Raises OSError, or msgspec.DecodeError."""
    packet, files = _receive(of)
    return (_to_server.decode(packet), files) if packet else None


def receive_answer(of: socket.socket) -> tuple[FromForkServer, list[int]] | None:
    """The next message and its files, or None at the end. Raises OSError, BlockingIOError among them."""
    packet, files = _receive(of)
    return (_from_server.decode(packet), files) if packet else None


def _receive(of: socket.socket) -> tuple[bytes, list[int]]:
    packet, files, _, _ = socket.recv_fds(of, _BYTES, FILES, socket.MSG_CMSG_CLOEXEC)
    return packet, files
