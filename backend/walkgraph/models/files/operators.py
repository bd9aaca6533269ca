"""ZIP archives, written and read by the standard library. A name in an archive never leaves the folder that the archive
is unpacked into, and what is unpacked here is bounded while it is read, whatever the archive says about its sizes."""

import io
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar

from walkgraph.abi.calls import Call, Outputs, plain_text
from walkgraph.abi.operator import Operator
from walkgraph.abi.states import States
from walkgraph.architectures.plain.values import bounded, few, invalid, items, texts
from walkgraph.media_types import SUFFIXES, mime_of, suffix_of
from walkgraph.models.files.components import MOST_FILES

MOST_BYTES = 64 << 20
"""The most bytes of all files of an archive together, unpacked."""
_MOST_CHARACTERS = 100
"""The most characters of a file's name, without its suffix."""
_ENTRY = b"PK\x01\x02"
"""Each file's entry in an archive's directory begins so."""
_MADE_AT = (1980, 1, 1, 0, 0, 0)
"""The first time that the format knows: equal files make equal archives."""
_READABLE = 0o644 << 16
_ENCRYPTED = 1
_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]+')
"""Characters that some system doesn't allow in a file's name, or reads as a path."""
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)
"""Devices of Windows."""
_PACKED = ("audio/wav", "text/plain", "application/octet-stream")
"""Types that get smaller when they are compressed."""
_WRITTEN = (".txt", ".md", ".csv", ".json", ".jsonl")
"""Suffixes of texts."""


class Zip(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"archive": archive} for archive in map(_archive, calls)]


class Unzip(Operator):
    pure: ClassVar[bool] = True
    threaded: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [_unpacked(call) for call in calls]


# ── packing ─────────────────────────────────────────────────────────────────────────────────────


def _archive(call: Call) -> bytes:
    files = [_file(call, item) for item in items(call, "items")]
    few(call, "items", len(files), MOST_FILES)
    if sum(len(data) for data, _, _ in files) > MOST_BYTES:
        raise invalid(call, "items", f"would pack more than {MOST_BYTES >> 20} MiB; give it fewer or smaller files")
    names = _names(call, [suffix for _, _, suffix in files])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, (data, mime, _) in zip(names, files, strict=True):
            entry = zipfile.ZipInfo(name, _MADE_AT)
            entry.external_attr = _READABLE
            entry.compress_type = zipfile.ZIP_DEFLATED if mime in _PACKED else zipfile.ZIP_STORED
            archive.writestr(entry, data)
    return made.getvalue()


def _file(call: Call, item: Any) -> tuple[bytes, str, str]:
    """(content, media type, suffix) of an item."""
    if isinstance(item, str):
        return plain_text(item).encode(), "text/plain", ".txt"
    if isinstance(item, bytes):
        mime = mime_of(item)
        return item, mime, suffix_of(mime)
    raise invalid(call, "items", "packs files and texts; encode a picture with `media.picture_out` first")


def _names(call: Call, suffixes: Sequence[str]) -> list[str]:
    """A name for each file, all different, also to systems that don't tell capitals from small letters."""
    stem = safe_name(str(call.params["called"])) or "file"
    width = len(str(len(suffixes)))
    wanted = [f"{stem}-{k:0{width}}" for k in range(1, len(suffixes) + 1)]
    if "names" in call.inputs:
        given = texts(call, "names")
        if len(given) != len(suffixes):
            raise invalid(call, "names", f"got {len(given)} names for {len(suffixes)} items; give one for each")
        asked = [_without(safe_name(name), suffix) for name, suffix in zip(given, suffixes, strict=True)]
        wanted = [name or other for name, other in zip(asked, wanted, strict=True)]
    used: set[str] = set()
    return [_unused(name, suffix, used) for name, suffix in zip(wanted, suffixes, strict=True)]


def safe_name(text: str) -> str:
    """A text as the name of one file, in any folder of any system; empty if nothing of it can stand there."""
    name = _FORBIDDEN.sub("_", unicodedata.normalize("NFC", text))
    name = "".join(letter for letter in name if unicodedata.category(letter) not in ("Cc", "Cf", "Cs"))
    name = name.strip(" .")[:_MOST_CHARACTERS].strip(" .")
    return f"_{name}" if _RESERVED.match(name) else name


def _without(name: str, suffix: str) -> str:
    return name[: -len(suffix)].rstrip(" .") if name.lower().endswith(suffix) else name


def _unused(name: str, suffix: str, used: set[str]) -> str:
    found, count = f"{name}{suffix}", 1
    while found.casefold() in used:
        count += 1
        found = f"{name} ({count}){suffix}"
    used.add(found.casefold())
    return found


# ── unpacking ───────────────────────────────────────────────────────────────────────────────────


def _unpacked(call: Call) -> Outputs:
    data = call.inputs["archive"]
    if not isinstance(data, bytes) or not zipfile.is_zipfile(io.BytesIO(data)):
        raise invalid(call, "archive", "takes a ZIP archive; this is none")
    if data.count(_ENTRY) > MOST_FILES:
        raise invalid(call, "archive", f"takes an archive of at most {MOST_FILES} files")
    kind, most = str(call.params["type"]), int(call.params["most"])
    names: list[str] = []
    found: list[Any] = []
    try:
        for name, content in _files(call, data):
            value = _of_kind(call, kind, name, content)
            if value is not None:
                names.append(name)
                found.append(value)
            if len(found) > most:
                raise invalid(call, "archive", f"takes at most {most} files; there are more, so raise `most`")
    except (zipfile.BadZipFile, RuntimeError, EOFError, zlib.error, ValueError, OSError):
        raise invalid(call, "archive", "can't read this archive; it is damaged, or of an unusual kind") from None
    return {"items": found, "names": names}


def _files(call: Call, data: bytes) -> Iterator[tuple[str, bytes]]:
    """(path, content) of each file; folders and what systems leave beside files are passed over."""
    left = MOST_BYTES
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            path = PurePosixPath(entry.filename)
            if entry.is_dir() or "__MACOSX" in path.parts or path.name.startswith("."):
                continue
            if entry.flag_bits & _ENCRYPTED:
                raise invalid(call, "archive", "can't read an archive with a password; send one without")
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile
            with archive.open(entry) as file:
                content = file.read(left + 1)
            left -= len(content)
            if left < 0:
                raise invalid(call, "archive", f"unpacks at most {MOST_BYTES >> 20} MiB; send smaller archives")
            yield entry.filename, content


def _of_kind(call: Call, kind: str, name: str, content: bytes) -> bytes | str | None:
    """The file's value; None if it is of another kind."""
    if kind == "bytes":
        return content
    if kind == "text":
        return _text(call, name, content)
    suffixes = tuple(suffix for mime, suffix in SUFFIXES.items() if mime.startswith(f"{kind}/"))
    return content if mime_of(content).startswith(f"{kind}/") or name.lower().endswith(suffixes) else None


def _text(call: Call, name: str, content: bytes) -> str | None:
    if not name.lower().endswith(_WRITTEN):
        return None
    try:
        text = plain_text(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return None
    bounded(call, "archive", len(text))
    return text
