"""A run as a list shows it: the start of its texts, and its picture, small."""

import io
from asyncio import Semaphore
from collections.abc import Iterable, Iterator, Sequence

import anyio.to_thread

from walkgraph.media_types import mime_of
from walkgraph.service.values.values import TEXT
from walkgraph.wire import messages as m

CHARACTERS = 200
"""Length of the texts."""
SIDE = 128
"""Pixels of the longer side of a small picture: a list's row shows it half as large, for dense screens."""
PREVIEW = "preview"
"""The output that a task names so shows pictures on the way to another one."""
AT_ONCE = 2
"""Pictures that are made small at the same time. Each may take `_MOST_PIXELS` times four bytes meanwhile."""
_MOST_PIXELS = 64 * 1024 * 1024
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF")


class Thumbnails:
    """Makes pictures small in threads. Those that are wanted together take turns, so that memory is bounded."""

    def __init__(self) -> None:
        self._turns = Semaphore(AT_ONCE)

    async def small(self, data: bytes) -> bytes | None:
        """Equals the function `small`."""
        async with self._turns:
            return await anyio.to_thread.run_sync(small, data)


def texts_of(submit: m.Submit) -> Iterator[str]:
    """The texts that a client sent; of a conversation those of the last turn that has some."""
    given = [*(value for found in submit.inputs.values() for value in found), *(part.value for part in submit.parts)]
    for value in given:
        match value:
            case m.Small(value=str() as text):
                yield text
            case m.Conversation(turns=turns):
                yield from next((texts for turn in reversed(turns) if (texts := _turn_texts(turn))), ())
            case _:
                pass


def shortened(texts: Iterable[str], between: str) -> str:
    """The texts in one line, without what is too long for one."""
    line = ""
    for text in texts:
        # Of a long text only the start is looked at; spaces may become fewer.
        words = " ".join(text[: 4 * CHARACTERS].split())
        line = f"{line}{between}{words}" if line and words else line or words
        if len(line) > CHARACTERS:
            return line[: CHARACTERS - 1] + "…"
    return line


def written(outputs: Sequence[m.Output]) -> str:
    """The start of the first output that is a text."""
    pieces = [output for output in outputs if isinstance(output.value, m.Small) and isinstance(output.value.value, str)]
    start = ""
    for output in pieces:
        if output.name == pieces[0].name and len(start) <= 4 * CHARACTERS:
            start += str(output.value.value) if isinstance(output.value, m.Small) else ""
    return shortened([start], "")


def picture_of(outputs: Sequence[m.Output]) -> bytes | None:
    """The newest picture of the first output that has one, encoded; that of a preview only where there is no other."""
    found: dict[str, bytes] = {}
    for output in outputs:
        picture = _picture(output.value, output.modality)
        if picture is not None:
            found[output.name] = picture
    final = next((name for name in found if name != PREVIEW), PREVIEW)
    return found.get(final)


def small(data: bytes) -> bytes | None:
    """A picture as a PNG of at most `SIDE` pixels; None if it can't be read. It takes time, so call it in a thread."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as picture:
            if picture.width * picture.height > _MOST_PIXELS:
                return None
            picture.thumbnail((SIDE, SIDE))
            made = io.BytesIO()
            picture.convert("RGBA" if picture.has_transparency_data else "RGB").save(made, "PNG")
            return made.getvalue()
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError):
        return None


def _turn_texts(turn: m.Turn) -> list[str]:
    return [
        part.value.value
        for part in turn.parts
        if part.modality == TEXT and isinstance(part.value, m.Small) and isinstance(part.value.value, str)
    ]


def _picture(value: m.Value, modality: str) -> bytes | None:
    match value:
        case m.Blob(data=data):
            kind = mime_of(data).startswith("image/")
            return data if kind and modality in ("image", "") else None
        case m.Many(items=items):
            return next((found for item in items if (found := _picture(item, modality)) is not None), None)
        case _:
            return None
