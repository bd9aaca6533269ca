"""Writes the images of runs as OpenAI's answers: all at once, or as they come.

In `usage`, `input_tokens` counts the tokens read of texts and images, and `output_tokens` the image's patches of 16 by
16 pixels plus the tokens of texts that were generated for it.
"""

import asyncio
import io
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import anyio.to_thread
import msgspec
import pybase64
from starlette.requests import Request
from starlette.responses import Response

from walkgraph.errors import ErrorInfo, RunFailed, WalkgraphError
from walkgraph.service.http import dialects, problems
from walkgraph.service.openai import counting
from walkgraph.service.openai.images.pictures import FORMATS
from walkgraph.service.openai.serving import Serving
from walkgraph.service.runs import streaming
from walkgraph.service.runs.disconnects import Streamed, leave, nobody, unless_left
from walkgraph.service.runs.runs import Event, LiveRun
from walkgraph.wire import messages as m

PATCH_PIXELS = 16
_SIGNED = b"\x89PNG\r\n\x1a\n"
_MOST_PIXELS = 64 * 1024 * 1024

Kind = Literal["image_generation", "image_edit"]


class TokenDetails(msgspec.Struct, frozen=True):
    image_tokens: int
    text_tokens: int


class InputDetails(TokenDetails, frozen=True):
    cached_tokens: int
    """Tokens found in caches."""


class Usage(msgspec.Struct, frozen=True):
    input_tokens: int
    """Tokens read of texts and images."""
    input_tokens_details: InputDetails
    """All are image tokens if the request has images: those of texts are not counted separately."""
    output_tokens: int
    output_tokens_details: TokenDetails
    """The image's patches of 16 by 16 pixels, and the tokens of texts that were generated for it."""
    total_tokens: int


class Picture(msgspec.Struct, frozen=True, omit_defaults=True):
    b64_json: str
    run: str
    seed: int | None = None
    revised_prompt: str | None = None
    """Text that the task generated before the image."""


class PicturesShown(msgspec.Struct, frozen=True):
    created: int
    background: Literal["opaque"]
    output_format: str
    size: str
    """`WIDTHxHEIGHT` of the first image."""
    data: list[Picture]
    usage: Usage


@dataclass(frozen=True)
class Look:
    """How images are encoded and sent."""

    kind: Kind
    form: str
    """One of `FORMATS`."""
    quality: int
    previews: int
    """Most previews of an image."""


@dataclass(frozen=True)
class _Encoded:
    text: str
    """Base64."""
    width: int
    height: int

    @property
    def size(self) -> str:
        return f"{self.width}x{self.height}"


class _Answer:
    """The answer of one run."""

    def __init__(self, run: LiveRun, serving: Serving, look: Look) -> None:
        self.run = run
        self._serving = serving
        self._look = look
        self._told = 0
        self._final = serving.output_of("image")

    async def partial(self, output: m.Output) -> dict[str, Any] | None:
        """The event of a preview; None if the output is not one, or enough were sent."""
        preview = self._serving.preview
        if preview is None or output.name != preview.name or self._told >= self._look.previews:
            return None
        number = self._told
        self._told += 1
        encoded = await self._encoded(output.value)
        return {**self._event("partial_image", encoded), "partial_image_index": number}

    async def completed(self) -> dict[str, Any]:
        """The event of the finished image. Raises RunFailed."""
        encoded = await self.picture()
        return {**self._event("completed", encoded), "usage": self.usage(encoded), **self._ours()}

    async def shown(self) -> tuple[Picture, _Encoded]:
        """The finished image for the answer. Raises RunFailed."""
        encoded = await self.picture()
        return Picture(b64_json=encoded.text, **self._ours()), encoded

    async def picture(self) -> _Encoded:
        end = self.run.finished
        if end is not None and end.error is not None:
            raise RunFailed(end.error)
        made = [o for o in self.run.outputs if self._final is not None and o.name == self._final.name]
        if not made:
            raise _broken("the run ended without an image; see it in `/api/v1/runs`")
        return await self._encoded(made[-1].value)

    def usage(self, encoded: _Encoded) -> Usage:
        end = self.run.finished
        read, found = (end.read, end.found) if end else (0, 0)
        texts = [output for output in self._serving.outputs if output.modality == "text"]
        written = counting.tokens(counting.loops_of(end, *texts), self._serving.begun) if end else 0
        drawn = -(-encoded.width // PATCH_PIXELS) * -(-encoded.height // PATCH_PIXELS)
        seen = read if self._look.kind == "image_edit" else 0
        return Usage(
            input_tokens=read,
            input_tokens_details=InputDetails(image_tokens=seen, text_tokens=read - seen, cached_tokens=found),
            output_tokens=drawn + written,
            output_tokens_details=TokenDetails(image_tokens=drawn, text_tokens=written),
            total_tokens=read + drawn + written,
        )

    def _ours(self) -> dict[str, Any]:
        names = [output.name for output in self._serving.outputs if output.modality == "text"]
        pieces = [str(o.value.value) for o in self.run.outputs if o.name in names and isinstance(o.value, m.Small)]
        return {"run": self.run.id, "seed": self.run.seed, "revised_prompt": "".join(pieces) or None}

    def _event(self, name: str, encoded: _Encoded) -> dict[str, Any]:
        return {
            "type": f"{self._look.kind}.{name}",
            "b64_json": encoded.text,
            "created_at": int(time.time()),
            "size": encoded.size,
            "quality": "auto",
            "background": "opaque",
            "output_format": self._look.form,
        }

    async def _encoded(self, value: m.Value) -> _Encoded:
        """Encodes an image off the event loop."""
        if not isinstance(value, m.Blob):
            raise _broken("the task's image is not encoded; put a `media.picture_out` before its output")
        return await anyio.to_thread.run_sync(encode, value.data, self._look.form, self._look.quality)


def encode(data: bytes, form: str, quality: int) -> _Encoded:
    """A run's image, converted to another format if necessary. Raises RunFailed if it is not an image."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=[name.upper() for name in FORMATS]) as picture:
            width, height = picture.size
            if width * height > _MOST_PIXELS:
                raise _broken("the run's image is too large to be encoded")
            if not (form == "png" and data.startswith(_SIGNED)):
                made = io.BytesIO()
                options = {} if form == "png" else {"quality": max(1, quality)}
                picture.convert("RGB").save(made, form.upper(), **options)
                data = made.getvalue()
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise _broken("the run's image could not be read") from None
    return _Encoded(pybase64.b64encode(data).decode(), width, height)


# ── all at once ─────────────────────────────────────────────────────────────────────────────────


async def whole(request: Request, runs: Sequence[LiveRun], serving: Serving, look: Look) -> Response:
    """Answers with all images. Raises RunFailed for the first run that fails; 499 if the client has left. All runs end
    with the answer."""
    try:
        ended = await unless_left(request, _all_done(runs))
    finally:
        leave(runs)
    if ended is None:
        return nobody()
    ended.result()
    answers = [_Answer(run, serving, look) for run in runs]
    made = [await answer.shown() for answer in answers]
    usages = [answer.usage(encoded) for answer, (_, encoded) in zip(answers, made, strict=True)]
    shown = PicturesShown(
        created=int(time.time()),
        background="opaque",
        output_format=look.form,
        size=made[0][1].size,
        data=[picture for picture, _ in made],
        usage=_sum(usages),
    )
    return Response(msgspec.json.encode(shown), media_type="application/json")


async def _all_done(runs: Sequence[LiveRun]) -> None:
    """Returns once all have ended; raises RunFailed as soon as one has failed."""
    await asyncio.gather(*map(_done, runs))


async def _done(run: LiveRun) -> None:
    if (error := (await run.ended()).error) is not None:
        raise RunFailed(error)


def _sum(usages: Sequence[Usage]) -> Usage:
    def total(read: Callable[[Usage], int]) -> int:
        return sum(map(read, usages))

    return Usage(
        input_tokens=total(lambda u: u.input_tokens),
        input_tokens_details=InputDetails(
            total(lambda u: u.input_tokens_details.image_tokens),
            total(lambda u: u.input_tokens_details.text_tokens),
            total(lambda u: u.input_tokens_details.cached_tokens),
        ),
        output_tokens=total(lambda u: u.output_tokens),
        output_tokens_details=TokenDetails(
            total(lambda u: u.output_tokens_details.image_tokens), total(lambda u: u.output_tokens_details.text_tokens)
        ),
        total_tokens=total(lambda u: u.total_tokens),
    )


# ── as they come ────────────────────────────────────────────────────────────────────────────────


class Coming:
    """The events of several runs, merged in the order in which they come."""

    def __init__(self, runs: Sequence[LiveRun], serving: Serving, look: Look) -> None:
        self._runs = runs
        self._left = len(runs)
        self._queue: asyncio.Queue[tuple[_Answer, Event]] = asyncio.Queue()
        self._pumps = [asyncio.ensure_future(self._pump(_Answer(run, serving, look))) for run in runs]

    async def next(self) -> dict[str, Any] | None:
        """The next event for the client; None at the end. Raises RunFailed for the first run that fails."""
        while self._left:
            answer, event = await self._queue.get()
            if isinstance(event, m.Finished):
                self._left -= 1
                return await answer.completed()
            if isinstance(event, m.Output) and (partial := await answer.partial(event)) is not None:
                return partial
        return None

    def close(self) -> None:
        """Call it once, when the client has the whole answer or has left."""
        for pump in self._pumps:
            pump.cancel()
        leave(self._runs)

    async def _pump(self, answer: _Answer) -> None:
        async for event in answer.run.follow():
            self._queue.put_nowait((answer, event))


async def stream(request: Request, runs: Sequence[LiveRun], serving: Serving, look: Look) -> Response:
    """Answers with server-sent events. An error before the first event sets the status, if it comes soon; 499 if the
    client has left. The runs end with the answer."""
    coming = Coming(runs, serving, look)
    with ExitStack() as leaving:
        leaving.callback(coming.close)
        first = asyncio.ensure_future(coming.next())
        leaving.callback(first.cancel)
        soon = await unless_left(request, asyncio.wait({first}, timeout=streaming.HEARTBEAT_SECONDS))
        if soon is None:
            return nobody()
        if first.done():
            first.result()
        return Streamed(told(coming, first), leaving.pop_all().close)


async def told(coming: Coming, first: "asyncio.Future[dict[str, Any] | None]") -> AsyncGenerator[bytes]:
    """The encoded events. An error is sent as the last one."""
    upcoming = first
    try:
        while True:
            done, _ = await asyncio.wait({upcoming}, timeout=streaming.HEARTBEAT_SECONDS)
            if not done:
                yield b": \n\n"
                continue
            try:
                event = upcoming.result()
            except WalkgraphError as error:
                event = {"type": "error", **dialects.openai_error(problems.said_of(error))}
            if event is None:
                return
            yield b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))
            if event["type"] == "error":
                return
            upcoming = asyncio.ensure_future(coming.next())
    finally:
        upcoming.cancel()


def _broken(message: str) -> RunFailed:
    return RunFailed(ErrorInfo(code="node_error", message=message))
