"""Checkpoints on one host: what their folders hold, and copies of folders of other hosts.

HOME / checkpoints / NAME             a copy, with the files it was made of in `.walkgraph-copy.json`
HOME / checkpoints / .NAME.part       a copy under way; one that was broken off goes on from here
"""

import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.placement.sizes import weights_folder

PIECE_BYTES: Final = 16 << 20
_MADE_OF = ".walkgraph-copy.json"


class CheckpointFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """Its path in the folder."""
    size: int
    changed: int
    """Nanoseconds since 1970."""


Files = tuple[CheckpointFile, ...]


class CopyBegun(msgspec.Struct, frozen=True, array_like=True):
    there: tuple[int, ...]
    """Bytes of each file that an earlier copy has brought."""
    free: int
    """Bytes of free disk space."""


def folder_of(name: str, roots: Sequence[str]) -> Path | None:
    """The folder of a checkpoint under the first root that has it."""
    try:
        return weights_folder(f"checkpoint:{name}", [Path(root) for root in roots])
    except NotFound:
        return None


def files_of(folder: Path) -> Files:
    """All files of a folder but hidden ones, in the order of their names."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder) for path in paths]
    return tuple(
        CheckpointFile(name.as_posix(), stat.st_size, stat.st_mtime_ns)
        for path, name in zip(paths, names, strict=True)
        if not any(part.startswith(".") for part in name.parts)
        for stat in (path.stat(),)
    )


def piece_of(folder: Path, name: str, start: int) -> bytes:
    """At most `PIECE_BYTES` of a file."""
    with _inside(folder, name).open("rb") as file:
        file.seek(start)
        return file.read(PIECE_BYTES)


class CheckpointCopy:
    """A copy of a checkpoint in a folder of copies."""

    def __init__(self, copies: Path, name: str, files: Files) -> None:
        self._whole, self._part, self._files = copies / name, copies / f".{name}.part", files

    @property
    def is_made(self) -> bool:
        """True if the copy is there, and was made of these very files."""
        try:
            return msgspec.json.decode((self._whole / _MADE_OF).read_bytes(), type=Files) == self._files
        except (FileNotFoundError, msgspec.DecodeError):
            return False

    def begin(self) -> CopyBegun:
        """Begin, or go on with what was brought of the same files."""
        self._part.mkdir(mode=0o700, parents=True, exist_ok=True)
        told = self._part / _MADE_OF
        if not told.exists() or msgspec.json.decode(told.read_bytes(), type=Files) != self._files:
            shutil.rmtree(self._part)
            self._part.mkdir(mode=0o700)
            told.write_bytes(msgspec.json.encode(self._files))
        return CopyBegun(tuple(map(self._brought, self._files)), shutil.disk_usage(self._part).free)

    def take(self, index: int, start: int, piece: bytes) -> None:
        """Add a piece of a file; bytes that are there are left out. Raises InvalidInput for one that doesn't follow."""
        there = self._brought(self._files[index])
        if there < start:
            raise InvalidInput(f"byte {start} of `{self._files[index].name}` came before byte {there}")
        path = _inside(self._part, self._files[index].name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(piece[there - start :])

    def finish(self) -> None:
        """Put the copy in its place. Raises InvalidInput if a file isn't whole: it has changed while it was copied."""
        for file in self._files:
            if self._brought(file) != file.size:
                raise InvalidInput(f"`{file.name}` changed while it was copied; deploy again")
        if self._whole.exists():
            shutil.rmtree(self._whole)
        self._part.rename(self._whole)

    def _brought(self, file: CheckpointFile) -> int:
        path = _inside(self._part, file.name)
        return path.stat().st_size if path.exists() else 0


def _inside(folder: Path, name: str) -> Path:
    """Raises InvalidInput for a path that leads out of the folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise InvalidInput(f"`{name}` is no file of a checkpoint")
    return folder / path
