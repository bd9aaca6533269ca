"""Media types of encoded values, told from their first bytes, and the suffixes of their files."""

from collections.abc import Callable

UNKNOWN = "application/octet-stream"
ZIP = "application/zip"

_HEAD_BYTES = 16
"""The most bytes that tell a format."""
_FORMATS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("image/png", lambda data: data.startswith(b"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", lambda data: data.startswith(b"\xff\xd8\xff")),
    ("image/gif", lambda data: data.startswith(b"GIF8")),
    ("image/webp", lambda data: data[:4] == b"RIFF" and data[8:12] == b"WEBP"),
    ("audio/wav", lambda data: data[:4] == b"RIFF" and data[8:12] == b"WAVE"),
    ("audio/flac", lambda data: data.startswith(b"fLaC")),
    ("audio/ogg", lambda data: data.startswith(b"OggS")),
    ("video/mp4", lambda data: data[4:8] == b"ftyp"),
    ("video/webm", lambda data: data.startswith(b"\x1a\x45\xdf\xa3")),
    # The second form is that of an archive without files.
    (ZIP, lambda data: data.startswith((b"PK\x03\x04", b"PK\x05\x06"))),
)
SUFFIXES = {
    "image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp", "audio/wav": ".wav",
    "audio/flac": ".flac", "audio/ogg": ".ogg", "audio/mpeg": ".mp3", "video/mp4": ".mp4", "video/webm": ".webm",
    ZIP: ".zip",
}  # fmt: skip


def mime_of(data: bytes | memoryview) -> str:
    head = bytes(data[:_HEAD_BYTES])
    return next((mime for mime, fits in _FORMATS if fits(head)), UNKNOWN)


def suffix_of(mime: str) -> str:
    """The suffix of a file of that type; `.bin` for an unknown one."""
    return SUFFIXES.get(mime, ".bin")
