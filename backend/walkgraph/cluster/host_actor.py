"""The actor of a host, which reads its hardware and what is installed there, measures its links, and copies
checkpoints."""

import platform
import time
from importlib import metadata
from pathlib import Path

import msgspec

from walkgraph import __version__
from walkgraph.cluster.checkpoint_files import CheckpointCopy, Files, files_of, folder_of, piece_of
from walkgraph.cluster.link_meter import LinkEnd, answer_once, measure
from walkgraph.errors import NotFound
from walkgraph.placement.hardware import find_hardware
from walkgraph.placement.transports import declared_transports
from walkgraph.settings import copied_checkpoints, use_gpus_of_host
from walkgraph.wire.processes.host_hardware import HostReport, encoded


class HostActor:
    """Its methods take and give bytes and numbers alone, as those of `RankActor` do."""

    def __init__(self) -> None:
        use_gpus_of_host()

    def report(self, roots: bytes) -> bytes:
        """An encoded `HostReport`. `roots`: an encoded list of the service's folders of checkpoints."""
        folders = msgspec.msgpack.decode(roots, type=tuple[str, ...])
        return encoded(
            HostReport(
                hardware=find_hardware(),
                versions={
                    "walkgraph": __version__,
                    "ray": metadata.version("ray"),
                    "python": ".".join(platform.python_version_tuple()[:2]),
                },
                lacks=tuple(name for name, one in declared_transports().items() if not one.installed),
                missing=tuple(folder for folder in folders if not Path(folder).is_dir()),
                clock=time.time(),
            )
        )

    def answer_link(self, end: bytes) -> int:
        """Answer the next measurement of a link to this host, an encoded `LinkEnd`; returns its port."""
        asked = msgspec.msgpack.decode(end, type=LinkEnd)
        return answer_once(asked.address, asked.token)

    def measure_link(self, end: bytes) -> bytes:
        """An encoded `Measured` of the link to a host that answers."""
        asked = msgspec.msgpack.decode(end, type=LinkEnd)
        return msgspec.msgpack.encode(measure(asked.address, asked.port, asked.token))

    def checkpoint(self, where: bytes) -> bytes:
        """The encoded files of a checkpoint; None if this host lacks it. `where`: its name, and the roots to search."""
        folder = folder_of(*_where(where))
        return msgspec.msgpack.encode(None if folder is None else files_of(folder))

    def piece(self, where: bytes, file: str, start: int) -> bytes:
        """Raises NotFound, OSError."""
        folder = folder_of(*_where(where))
        if folder is None:
            raise NotFound("the checkpoint is gone while it is copied")
        return piece_of(folder, file, start)

    def begin_copy(self, where: bytes, files: bytes) -> bytes:
        """An encoded `CopyBegun`; None if this host has a folder or a copy of the checkpoint."""
        copy = _copy(where, files)
        made = folder_of(*_where(where)) is not None or copy.is_made
        return msgspec.msgpack.encode(None if made else copy.begin())

    def take_piece(self, where: bytes, files: bytes, index: int, start: int, piece: bytes) -> None:
        _copy(where, files).take(index, start, piece)

    def finish_copy(self, where: bytes, files: bytes) -> None:
        _copy(where, files).finish()


def _where(encoded: bytes) -> tuple[str, tuple[str, ...]]:
    return msgspec.msgpack.decode(encoded, type=tuple[str, tuple[str, ...]])


def _copy(where: bytes, files: bytes) -> CheckpointCopy:
    name, _ = _where(where)
    return CheckpointCopy(copied_checkpoints(), name, msgspec.msgpack.decode(files, type=Files))
