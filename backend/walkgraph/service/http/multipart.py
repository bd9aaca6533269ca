"""Reads `multipart/form-data` bodies in memory, within limits, on the routes that match `PATHS`.

    form = await multipart.read(request)          # or read_body(content_type, chunks)
    form.one("request")                           # the only part of that name, or None
    form.named("image", "image[]")                # all of these names, in their order

A part is bytes with a name. Its file name is client data and never used as a path. Nothing is written to disk. The
bytes are gathered once and handed over without another copy: a request holds at most the size of its body, plus one
part for a moment.

A native task's form (`POST /v1/tasks/{deployment}/{task}`) has one part `request`, its JSON, and a part for each frame
that this names: `{"type": "image", "frame": 0}` is the part called `0`.
"""

import io
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from walkgraph.service.http import limits
from walkgraph.service.http.body import BadForm, BodyTooLarge

MEDIA_TYPE = "multipart/form-data"
PATHS = re.compile(
    r"/v1/images/(edits|variations)|/v1/audio/(transcriptions|translations)|/v1/tasks/[^/]+/[^/]+", re.ASCII
)
"""Paths on which a POST may be a form. Some have no route: they are here so that the client gets a 404. All other
mutations accept only JSON."""

_NAME_CHARACTERS = 200
_BOUNDARY_CHARACTERS = 70
_GATHERED_BYTES = 64 * 1024
"""Smaller chunks are gathered to this size before they are parsed."""
_PLAIN_ENCODINGS = (b"", b"binary", b"8bit", b"7bit")


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    data: bytes
    filename: str | None = None
    """The client's name for the file; None for a field."""
    mime: str = ""
    """The client's content type in lower case without parameters; empty if it gives none."""

    @property
    def text(self) -> str:
        """The bytes decoded. Raises BadForm if they are not UTF-8."""
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise BadForm(f"the part `{self.name}` is not UTF-8 (byte {error.start})", f"/{self.name}") from None


@dataclass(frozen=True, slots=True)
class Form:
    parts: tuple[Part, ...]
    """The parts in the order in which they came."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parts, each once."""
        return tuple(dict.fromkeys(part.name for part in self.parts))

    def named(self, *names: str) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.name in names)

    def one(self, name: str) -> Part | None:
        """The part of that name, or None. Raises BadForm if there are several."""
        found = self.named(name)
        if len(found) > 1:
            raise BadForm(f"the part `{name}` appears {len(found)} times; keep one", f"/{name}")
        return found[0] if found else None


def is_form(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == MEDIA_TYPE


async def read(request: Request) -> Form:
    """Reads a request's body as a form. Raises BadForm if it is not one, BodyTooLarge beyond a limit, and whatever
    `Access` raises for a body that is too large or too slow."""
    return await read_body(request.headers.get("content-type", ""), request.stream())


async def read_body(content_type: str, chunks: AsyncIterator[bytes]) -> Form:
    reader = _Reader(_boundary(content_type))
    gathered: list[bytes] = []
    size = 0
    async for chunk in chunks:
        gathered.append(chunk)
        size += len(chunk)
        if size >= _GATHERED_BYTES or len(gathered) >= _GATHERED_BYTES // 64:
            reader.write(b"".join(gathered))
            gathered.clear()
            size = 0
    reader.write(b"".join(gathered))
    return reader.form()


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != MEDIA_TYPE.encode() or not 0 < len(boundary) <= _BOUNDARY_CHARACTERS:
        raise BadForm(f"name the form's boundary (1 to {_BOUNDARY_CHARACTERS} characters) in its content type")
    if not boundary.isascii() or not boundary.decode("ascii").isprintable() or boundary.endswith(b" "):
        raise BadForm("the boundary has characters that are not allowed there; use letters and digits")
    return boundary


class _Reader:
    """Collects the parts as the parser finds them, with limits on every count and size."""

    def __init__(self, boundary: bytes) -> None:
        self._parts: list[Part] = []
        self._delimiter = b"\r\n--" + boundary
        self._delimiters = 0
        self._size = 0
        self._whole = False
        self._headers: dict[bytes, bytes] = {}
        self._key = b""
        self._value = b""
        self._files = 0
        self._room = 0
        self._part = Part("", b"")
        """The current part, still without its bytes."""
        self._data = io.BytesIO()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_field,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._part_data,
                "on_part_end": self._part_end,
                "on_end": self._end,
            },
            max_header_count=limits.FORM_HEADERS,
            max_header_size=limits.FORM_HEADER_BYTES,
        )

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > limits.FORM_BYTES:
            raise BodyTooLarge(f"a form may have {limits.FORM_BYTES} bytes")
        self._count(data)
        try:
            self._parser.write(data)
        except FormParserError:
            raise BadForm("the body is not a multipart form; build it with a library for forms") from None

    def form(self) -> Form:
        if not self._whole:
            raise BadForm("the form ends before its last boundary; send all of it")
        return Form(tuple(self._parts))

    def _count(self, data: bytes) -> None:
        """Limits the delimiters: they cost the parser far more than other bytes, even where they end no part. (One that
        is split between two writes is missed.)"""
        self._delimiters += data.count(self._delimiter)
        if self._delimiters > limits.FORM_FILES + limits.FORM_FIELDS + 2:
            raise BodyTooLarge(f"a form may have {limits.FORM_FILES} files and {limits.FORM_FIELDS} fields")

    def _begin(self) -> None:
        self._headers = {}

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._key += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        key, self._key = self._key.lower(), b""
        value, self._value = self._value, b""
        if key in self._headers:
            raise BadForm("a header appears twice in one part of the form; keep one")
        self._headers[key] = value

    def _headers_finished(self) -> None:
        kind, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        if kind != b"form-data" or not options.get(b"name"):
            raise BadForm('each part of a form needs `Content-Disposition: form-data; name="..."`')
        if self._headers.get(b"content-transfer-encoding", b"").strip().lower() not in _PLAIN_ENCODINGS:
            raise BadForm("a part of the form is encoded; send its bytes as they are")
        mime = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if mime.startswith(b"multipart/"):
            raise BadForm("a part of the form is a form itself; send its parts side by side")
        filename: str | None = None
        if b"filename" in options:
            filename = options[b"filename"].decode(errors="replace")[:_NAME_CHARACTERS]
        self._files += filename is not None
        fields = len(self._parts) + 1 - self._files
        if self._files > limits.FORM_FILES or fields > limits.FORM_FIELDS:
            raise BodyTooLarge(f"a form may have {limits.FORM_FILES} files and {limits.FORM_FIELDS} fields")
        self._part = Part(_text(options[b"name"]), b"", filename, mime.decode("latin-1")[:_NAME_CHARACTERS])
        self._room = limits.FORM_BYTES if filename is not None else limits.FORM_FIELD_BYTES
        self._data = io.BytesIO()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self._room -= end - start
        if self._room < 0:
            raise BodyTooLarge(f"a field of a form may have {limits.FORM_FIELD_BYTES} bytes; send it as a file")
        self._data.write(memoryview(data)[start:end])

    def _part_end(self) -> None:
        part, data = self._part, self._data.getvalue()
        self._parts.append(Part(part.name, data, part.filename, part.mime))
        self._data = io.BytesIO()

    def _end(self) -> None:
        self._whole = True


def _text(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise BadForm("a part's name is not UTF-8; name it in plain letters") from None
    if len(text) > _NAME_CHARACTERS or not text.isprintable():
        raise BadForm(f"a part's name may have {_NAME_CHARACTERS} printable characters")
    return text
