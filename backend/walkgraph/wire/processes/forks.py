"""Messages between a conductor and what starts its workers: the fork server, whose processes are forked once the slow
imports are done, or the actor server, which has them started on hosts of a cluster.

They travel over a SEQPACKET socket, one message a packet, with files beside it:

conductor -> server    Fork, with the files LIFELINE, OUTPUT; Kill
server -> conductor    Forked, with the file PIDFD where it is a process of this host; Exited
service -> actor server    AskHosts
actor server -> service    HostTold for each host; or NoHosts
"""

import array
import socket

import msgspec

from walkgraph.wire.processes.host_network import Ports

LIFELINE, OUTPUT = 0, 1
"""Files of a `Fork`: a pipe whose other end only the conductor has, and what takes the standard outputs."""
FILES = 2
"""Most files of a message."""
_BYTES = 64 * 1024
"""Longest message: the report of a host with many GPUs, and its links to many others."""


class Fork(msgspec.Struct, frozen=True, tag="fork", forbid_unknown_fields=True):
    """Start a worker."""

    directory: str
    """The deployment's folder."""
    rank: int
    start: int
    """Number of this start of the rank."""
    ports: Ports | None = None
    """The address at which a rank on another host finds its conductor."""


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
    reason: str = ""
    """A sentence that says what to do then; empty if there is none."""


class Exited(msgspec.Struct, frozen=True, tag="exited", forbid_unknown_fields=True):
    rank: int
    start: int
    code: int
    """Exit status; negative for a signal."""


class AskHosts(msgspec.Struct, frozen=True, tag="ask_hosts", forbid_unknown_fields=True):
    """Tell the hosts of the cluster, the service's own first."""

    roots: tuple[str, ...] = ()
    """The service's folders of checkpoints, which the hosts should have too."""
    without: tuple[str, ...] = ()
    """Hosts that are not asked, as they are known not to answer."""


class LinkTold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The link to a host that was told before, as it was measured."""

    to: str
    """The host's name."""
    bandwidth: float
    """Bytes a second."""
    latency: float
    """Seconds."""


class HostTold(msgspec.Struct, frozen=True, tag="host_told", forbid_unknown_fields=True):
    name: str
    """Its node's in the cluster."""
    address: str
    report: bytes
    """An encoded `HostReport`; empty for a host that doesn't answer."""
    left: int
    """Hosts that are still to be told."""
    skew: float = 0.0
    """Seconds by which its clock is ahead of this one's."""
    links: tuple[LinkTold, ...] = ()


class NoHosts(msgspec.Struct, frozen=True, tag="no_hosts", forbid_unknown_fields=True):
    reason: str
    """A sentence that says what to do."""


ToForkServer = Fork | Kill | AskHosts
FromForkServer = Forked | Exited
AboutHosts = HostTold | NoHosts
_encode = msgspec.msgpack.encode
_to_server: msgspec.msgpack.Decoder[ToForkServer] = msgspec.msgpack.Decoder(ToForkServer)
_from_server: msgspec.msgpack.Decoder[FromForkServer] = msgspec.msgpack.Decoder(FromForkServer)
_about_hosts: msgspec.msgpack.Decoder[AboutHosts] = msgspec.msgpack.Decoder(AboutHosts)


def send(to: socket.socket, message: ToForkServer | FromForkServer | AboutHosts, *files: int) -> None:
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


def receive_host(of: socket.socket) -> AboutHosts | None:
    """The next answer to `AskHosts`, or None at the end. Raises OSError, or msgspec.DecodeError."""
    packet, _ = _receive(of)
    return _about_hosts.decode(packet) if packet else None


def _receive(of: socket.socket) -> tuple[bytes, list[int]]:
    packet, files, _, _ = socket.recv_fds(of, _BYTES, FILES, socket.MSG_CMSG_CLOEXEC)
    return packet, files
