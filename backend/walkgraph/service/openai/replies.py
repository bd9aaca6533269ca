"""Writes the answer of a chat completion from the runs of its choices: whole, or in OpenAI's chunks as they come."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

import msgspec
import pybase64

from walkgraph.errors import RunFailed, WalkgraphError
from walkgraph.ids import RunId
from walkgraph.placement.tables import BOUND, STOP
from walkgraph.service.http import dialects
from walkgraph.service.http.problems import said_of
from walkgraph.service.openai import counting
from walkgraph.service.openai.chat import Sent
from walkgraph.service.openai.tool_calls import CallReader, FoundCall
from walkgraph.service.openai.tool_choice import lacking
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.streaming import HEARTBEAT_SECONDS
from walkgraph.service.values import sound
from walkgraph.wire import messages as m

HEARTBEAT = b": \n\n"
DONE = b"data: [DONE]\n\n"
SOUND_SECONDS = 3600
"""Lifetime of audio ids that answers state, since clients read it; audio can't be referred to by its id here."""
_FORMATS = {"pcm16": "pcm"}


class Text(NamedTuple):
    text: str


class Scored(NamedTuple):
    entries: list[dict[str, Any]]
    """OpenAI's entries of tokens with their log-probabilities."""


class Heard(NamedTuple):
    data: bytes
    """A piece of audio as the task output it."""


class Called(NamedTuple):
    call: dict[str, Any]
    """OpenAI's tool call."""


class Ended(NamedTuple):
    finish: str
    """`stop`, `length` or `tool_calls`."""
    read: int
    found: int
    made: int
    """Tokens of the generated text."""
    reasons: Mapping[str, str]
    """Output -> why it ended (`counting.reasons`)."""


Piece = Text | Called | Scored | Heard | Ended


async def pieces(run: LiveRun, sent: Sent) -> AsyncIterator[Piece]:
    """The texts, tool calls, audio and end of one choice. Raises RunFailed, also for an answer without the call that
    it must make."""
    if sent.calls is None or sent.tools is None:
        async for piece in _plain(run, sent):
            yield piece
        return
    reader, tools, calls = CallReader(sent.calls, sent.tools.schemas), sent.tools, 0
    begun = list(reader.feed(sent.opening))
    async for piece in _plain(run, sent):
        found = [*begun, *(reader.feed(piece.text) if isinstance(piece, Text) else ())]
        begun.clear()
        for one in (*found, *(reader.finish() if isinstance(piece, Ended) else ())):
            if isinstance(one, FoundCall):
                tools.judge(one.name, one.arguments)
                if not (calls and tools.single):
                    function = {"name": one.name, "arguments": one.arguments}
                    yield Called({"id": f"call_{run.id}_{calls}", "type": "function", "function": function})
                calls += 1
            elif tools.call is not None and not calls:
                cut = isinstance(piece, Ended) and piece.finish == "length"
                raise lacking(
                    "it was cut at `max_tokens`" if cut else "it is no JSON of a function's name and arguments"
                )
            else:
                yield Text(one)
        if isinstance(piece, Ended) and calls and piece.finish == "stop":
            yield piece._replace(finish="tool_calls")
        elif not isinstance(piece, Text):
            yield piece


async def _plain(run: LiveRun, sent: Sent) -> AsyncIterator[Piece]:
    """The pieces with tool calls as text."""
    counted = outside = 0
    async for event in run.follow():
        match event:
            case m.Output(name=name, value=m.Small(value=str() as text)) if name == sent.text.name:
                counted += 1
                outside += not event.iteration
                if text:
                    yield Text(text)
            case m.Output(name=name, value=m.Small(value=str() as lines)) if name == sent.logprobs:
                yield Scored([msgspec.json.decode(line) for line in lines.splitlines()])
            case m.Output(name=name, value=m.Blob(data=data)) if sent.audio and name == sent.audio.name:
                if run.cut is None or not run.cut.stopped:
                    yield Heard(data)
            case m.Finished():
                if event.error is not None:
                    raise RunFailed(event.error)
                counted = counted if run.cut is None else run.cut.pieces
                if run.cut is not None and run.cut.stopped:
                    yield Ended("stop", event.read, event.found, counted, {sent.text.name: STOP})
                else:
                    yield _ended(event, sent, counted, outside)
            case _:
                pass


def _ended(event: m.Finished, sent: Sent, counted: int, outside: int) -> Ended:
    """The end, counted by the loops that the text leaves from. `outside`: texts from outside any loop. An answer whose
    audio was cut is cut too."""
    text = sent.text
    # Text that comes before a loop without iterations: the limit left it none.
    told = {text.name: BOUND if text.loops and outside else STOP, **counting.reasons(event, text, sent.audio)}
    finish = "stop" if set(told.values()) == {STOP} else "length"
    made = counting.text_tokens(event, text, counted, outside)
    return Ended(finish, event.read, event.found, made, told)


# ── whole ───────────────────────────────────────────────────────────────────────────────────────


async def completion(runs: Sequence[LiveRun], sent: Sent, model: str) -> dict[str, Any]:
    """A `chat_schemas.Completion`. Raises the error of the first choice that fails."""
    told = await asyncio.gather(*(_whole(run, sent) for run in runs))
    choices: list[dict[str, Any]] = []
    for i, (run, (text, calls, scored, heard, ended)) in enumerate(zip(runs, told, strict=True)):
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message |= {"content": text or None, "tool_calls": calls}
        if sent.audio is not None:
            data = await asyncio.to_thread(sound.encoded, heard, _FORMATS.get(sent.format, sent.format))
            message |= {"content": None, "audio": _sound(run.id, pybase64.b64encode(data).decode(), text)}
        logprobs = None if sent.logprobs is None else _logprobs(scored)
        choices.append({"index": i, "message": message, "logprobs": logprobs, **_finish(ended)})
    return {
        "id": name_of(runs),
        "object": "chat.completion",
        "created": int(runs[0].created_at),
        "model": model,
        "choices": choices,
        "usage": usage([ended for *_, ended in told]),
    }


def _finish(ended: Ended) -> dict[str, Any]:
    return {"finish_reason": ended.finish, "finish_reasons": ended.reasons}


def _logprobs(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"content": entries, "refusal": None}


async def _whole(
    run: LiveRun, sent: Sent
) -> tuple[str, list[dict[str, Any]], list[dict[str, Any]], list[bytes], Ended]:
    """Text, tool calls, log-probabilities, audio and end."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    scored: list[dict[str, Any]] = []
    heard: list[bytes] = []
    ended = Ended("stop", 0, 0, 0, {})
    async for piece in pieces(run, sent):
        match piece:
            case Text():
                texts.append(piece.text)
            case Called():
                calls.append(piece.call)
            case Scored():
                scored += piece.entries
            case Heard():
                heard.append(piece.data)
            case Ended():
                ended = piece
    return "".join(texts), calls, scored, heard, ended


def _sound(run: RunId, data: str, transcript: str) -> dict[str, Any]:
    return {"id": _sound_id(run), "data": data, "expires_at": _expiry(), "transcript": transcript}


def _sound_id(run: RunId) -> str:
    return f"audio_{run}"


def _expiry() -> int:
    return int(time.time()) + SOUND_SECONDS


def name_of(runs: Sequence[LiveRun]) -> str:
    return f"chatcmpl-{runs[0].id}"


def usage(ends: Sequence[Ended]) -> dict[str, Any]:
    """Token counts. All choices read the same prompt, so it counts once."""
    read, found = max(end.read for end in ends), min(end.found for end in ends)
    made = sum(end.made for end in ends)
    return {
        "prompt_tokens": read,
        "completion_tokens": made,
        "total_tokens": read + made,
        "prompt_tokens_details": {"cached_tokens": found},
    }


# ── as it is made ───────────────────────────────────────────────────────────────────────────────


class Chunks:
    """OpenAI's server-sent events of one completion."""

    def __init__(self, runs: Sequence[LiveRun], sent: Sent, model: str, *, with_usage: bool) -> None:
        self._runs, self._sent, self._with_usage = runs, sent, with_usage
        self._head = {
            "id": name_of(runs),
            "object": "chat.completion.chunk",
            "created": int(runs[0].created_at),
            "model": model,
        }
        self._queue: asyncio.Queue[tuple[int, dict[str, Any] | Scored | Ended | WalkgraphError]] = asyncio.Queue(64)

    async def events(self) -> AsyncGenerator[bytes]:
        """The events until all choices have ended, or one has failed."""
        tasks = [asyncio.create_task(self._choice(i, run)) for i, run in enumerate(self._runs)]
        try:
            async with aclosing(self._merged()) as merged:
                async for event in merged:
                    yield event
        finally:
            for task in tasks:
                task.cancel()

    async def _merged(self) -> AsyncGenerator[bytes]:
        ends: list[Ended] = []
        written = b""
        while len(ends) < len(self._runs):
            if self._queue.empty() and written:
                # Events that came together are sent in one piece.
                yield written
                written = b""
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    index, told = await self._queue.get()
            except TimeoutError:
                yield HEARTBEAT
                continue
            match told:
                case WalkgraphError():
                    yield written + _event(dialects.openai_error(said_of(told))) + DONE
                    return
                case Ended():
                    ends.append(told)
                    written += self._chunk(index, {}, told)
                case Scored():
                    written += self._chunk(index, {"content": ""}, None, _logprobs(told.entries))
                case _:
                    written += self._chunk(index, told, None)
        if self._with_usage:
            written += _event({**self._head, "choices": [], "usage": usage(ends)})
        yield written + DONE

    def _chunk(
        self, index: int, delta: dict[str, Any], ended: Ended | None, logprobs: dict[str, Any] | None = None
    ) -> bytes:
        finish = {"finish_reason": None} if ended is None else _finish(ended)
        choice = {"index": index, "delta": delta, "logprobs": logprobs, **finish}
        more = {"usage": None} if self._with_usage else {}
        return _event({**self._head, "choices": [choice], **more})

    async def _choice(self, index: int, run: LiveRun) -> None:
        """Puts one choice's deltas, and its end or error, into the queue."""
        heard = sound.Stream(_FORMATS.get(self._sent.format, self._sent.format)) if self._sent.audio else None
        try:
            first = {"role": "assistant", "content": None if heard else "", "refusal": None}
            await self._queue.put((index, first))
            if heard is not None:
                await self._queue.put((index, {"audio": {"id": _sound_id(run.id), "transcript": ""}}))
            async for piece in pieces(run, self._sent):
                match piece:
                    case Text():
                        delta = {"content": piece.text} if heard is None else {"audio": {"transcript": piece.text}}
                        await self._queue.put((index, delta))
                    case Heard():
                        for delta in _heard(await heard.feed(piece.data) if heard else b""):
                            await self._queue.put((index, delta))
                    case Called():
                        call = {"index": int(piece.call["id"].rpartition("_")[2]), **piece.call}
                        await self._queue.put((index, {"tool_calls": [call]}))
                    case Scored():
                        await self._queue.put((index, piece))
                    case Ended():
                        if heard is not None:
                            for delta in _heard(await heard.finish()):
                                await self._queue.put((index, delta))
                            await self._queue.put((index, {"audio": {"expires_at": _expiry()}}))
                        await self._queue.put((index, piece))
        except WalkgraphError as error:
            await self._queue.put((index, error))


def _heard(data: bytes) -> Iterator[dict[str, Any]]:
    if data:
        yield {"audio": {"data": pybase64.b64encode(data).decode()}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(value)


async def begun(run: LiveRun) -> None:
    """Waits for a run's first output, at most `HEARTBEAT_SECONDS`. Raises RunFailed if the run fails before it, so that
    the answer gets that error's status."""
    with suppress(TimeoutError):
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            async for event in run.follow():
                if not isinstance(event, m.Accepted):
                    break
    if run.finished is not None and run.finished.error is not None and not run.outputs:
        raise RunFailed(run.finished.error)
