"""`POST /v1/audio/speech`: converts OpenAI's request to a task's, and streams the task's audio as the answer.

Nothing is sent before the first piece of audio, so that earlier errors set the status.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import ExitStack
from typing import Annotated, Any, Literal, cast

import msgspec
import pybase64
import structlog
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from walkgraph.errors import ErrorInfo, InvalidInput, RunFailed, WalkgraphError
from walkgraph.service.http import dialects, limits, problems
from walkgraph.service.http.dialects import Fault
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.openai import counting
from walkgraph.service.openai.serving import Serving
from walkgraph.service.runs.disconnects import EVENTS, Streamed, leave, nobody, unless_left
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.values import sound
from walkgraph.wire import messages as m

INSTRUCTIONS = ("instructions", "system_prompt")
"""Usual names of the parameter that says how to speak."""
NAME_CHARACTERS = 129
"""Most characters of `deployment/task`."""
RATE_HEADER = "x-audio-rate"
"""The sample rate, since `pcm` has no header that states it."""

_log = structlog.get_logger("walkgraph.service")


def bare_voice(voice: Any) -> Any:
    """Replaces OpenAI's `{"id": "tara"}` with `"tara"`."""
    if isinstance(voice, dict):
        given = cast(dict[str, Any], voice)
        return given["id"] if set(given) == {"id"} else given
    return voice


_VOICE: dict[str, JsonValue] = {"type": "string", "minLength": 1, "maxLength": 256}
_VOICE_ID: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"id": _VOICE},
    "required": ["id"],
    "additionalProperties": False,
}


class SpeechRequest(BaseModel):
    """OpenAI's body. Other keys are parameters of the task: `temperature`, `seed`, `max_tokens`."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: str = Field(min_length=1, max_length=NAME_CHARACTERS, description="`deployment`, or `deployment/task`.")
    input: str = Field(min_length=1, max_length=limits.TEXT_CHARACTERS, description="What to say.")
    voice: Annotated[str | None, BeforeValidator(bare_voice)] = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="One of the task's voices, or `{\"id\": ...}` with one; by default the task's default voice.",
        json_schema_extra={"anyOf": [_VOICE, _VOICE_ID, {"type": "null"}]},
    )
    response_format: str = Field(
        default="mp3", max_length=16, json_schema_extra={"enum": list(sound.FORMATS)}, description="OpenAI's default."
    )
    stream_format: Literal["audio", "sse"] = "audio"
    speed: float = Field(default=1.0, ge=0.25, le=4.0, description="Only 1.0 is supported.")
    instructions: str | None = Field(
        default=None,
        max_length=limits.TEXT_CHARACTERS,
        description="How to speak, if the task has a parameter for it.",
    )


# ── the request ─────────────────────────────────────────────────────────────────────────────────


def task_body(asked: SpeechRequest, serving: Serving) -> dict[str, Any]:
    """The body of the native request. Raises InvalidInput with a pointer into OpenAI's body."""
    if asked.response_format not in sound.FORMATS:
        raise _wrong("/response_format", f"there are {_listed(sound.FORMATS)}")
    if asked.speed != 1.0:
        raise _wrong("/speed", "only speed 1.0 is supported; leave this out, and let the player change it")
    params: dict[str, Any] = dict(asked.model_extra or {})
    if asked.instructions is not None:
        params[_instructions(serving)] = asked.instructions
    if asked.voice is not None:
        params |= voice_param(serving, asked.voice, "/voice")
    return {
        "inputs": {serving.inputs_of("text")[0]: asked.input},
        "params": params,
        "outputs": [output.name for output in serving.outputs if output.modality == "audio"][:1],
    }


def voice_param(serving: Serving, voice: str, pointer: str) -> dict[str, str]:
    """The task's parameter for OpenAI's `voice`. Raises InvalidInput, which lists the choices."""
    name = serving.voice
    if name is None:
        raise _wrong(pointer, f"task `{serving.name}` has one voice; leave this out")
    choices, voice = serving.params[name].choices, serving.voice_named(voice)
    if choices and voice not in choices:
        raise _wrong(pointer, f"there is no such voice; there are {_listed(choices)}")
    return {name: voice}


def _instructions(serving: Serving) -> str:
    name = next((name for name in INSTRUCTIONS if name in serving.params), None)
    if name is None:
        raise _wrong("/instructions", f"task `{serving.name}` takes no instructions; leave this out")
    return name


def in_openai_terms(error: WalkgraphError, serving: Serving) -> WalkgraphError:
    """The native request's error, with pointers into OpenAI's body."""
    if not isinstance(error, Unprocessable):
        return error
    text = serving.inputs_of("text")[0]
    places = {f"/inputs/{text}": "/input"}
    if serving.voice:
        places[f"/params/{serving.voice}"] = "/voice"
    found = [
        Fault(places.get(fault.pointer, fault.pointer.removeprefix("/params")), fault.code, fault.message)
        for fault in error.faults
    ]
    return Unprocessable(str(error), found)


def _wrong(pointer: str, message: str) -> InvalidInput:
    return Unprocessable(message, [Fault(pointer, "bad_value", message)])


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ── the answer ──────────────────────────────────────────────────────────────────────────────────


class Speech:
    """The audio of one run as a stream of encoded bytes."""

    def __init__(self, run: LiveRun, form: str, serving: Serving) -> None:
        self.run, self._serving = run, serving
        self.sound = sound.Stream(form)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Non-empty bytes as they become ready. Raises RunFailed if the run fails, and as `Stream.feed`."""
        async for event in self.run.follow():
            if isinstance(event, m.Output) and isinstance(event.value, m.Blob):
                data = await self.sound.feed(event.value.data)
                if data:
                    yield data
            elif isinstance(event, m.Finished) and event.error is not None:
                raise RunFailed(event.error)
        if not self.sound.rate:
            raise RunFailed(ErrorInfo(code="node_error", message="the model output no audio; try another text or seed"))
        last = await self.sound.finish()
        if last:
            yield last

    def usage(self) -> dict[str, int]:
        """Token counts, once the run has ended."""
        end = self.run.finished
        read = end.read if end else 0
        loops = counting.loops_of(end, self._serving.output_of("audio")) if end else []
        made = counting.tokens(loops, self._serving.begun)
        return {"input_tokens": read, "output_tokens": made, "total_tokens": read + made}


async def answer(request: Request, run: LiveRun, serving: Serving, form: str, *, events: bool) -> Response:
    """Answers with the run's audio. Raises the run's error if it comes before the first byte; 499 if the client has
    left by then.

    `events`: as server-sent events. The run ends if the client leaves.
    """
    speech = Speech(run, form, serving)
    pieces = speech.pieces()
    with ExitStack() as leaving:
        leaving.callback(leave, (run,))
        first = await unless_left(request, _first(pieces))
        if first is None:
            return nobody()
        body = _chained(first.result(), pieces)
        media_type = EVENTS if events else speech.sound.format.media_type
        headers = {RATE_HEADER: str(speech.sound.rate)}
        written = _events(speech, body) if events else body
        return _Sound(written, leaving.pop_all().close, media_type, headers)


async def _first(pieces: AsyncIterator[bytes]) -> bytes:
    return await anext(pieces, b"")


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for piece in rest:
        yield piece


class _Sound(Streamed):
    """Ends without the final chunk if the run fails, so that the client sees that the answer is incomplete."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except WalkgraphError as error:
            _log.warning("speech cut off", code=error.info().code, reason=str(error))


async def _events(speech: Speech, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    try:
        async for piece in pieces:
            yield _event({"type": "speech.audio.delta", "audio": pybase64.b64encode(piece).decode()})
        yield _event({"type": "speech.audio.done", "usage": speech.usage()})
    except WalkgraphError as error:
        yield _event({"type": "error", **dialects.openai_error(problems.said_of(error))})


def _event(data: Mapping[str, Any]) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(data)
