"""A realtime conversation without a network: the socket is a queue, and the test sets the outputs of runs."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import soundfile
from starlette.websockets import WebSocketState

from tests.unit.service.fakes import PNG
from walkgraph import resources
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.service.openai import serving
from walkgraph.service.openai.realtime.session import Session
from walkgraph.service.openai.serving import Resolved, Serving
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.tasks import read_request
from walkgraph.wire import messages as m

PICTURE = "data:image/png;base64," + base64.b64encode(PNG).decode()
SAMPLES = np.arange(480, dtype="<i2")
PCM = base64.b64encode(SAMPLES.tobytes()).decode()


def graph_of(name: str) -> Graph:
    return codec.load(resources.bundled("graphs")[name].read_bytes())


def serving_of(graph: str, task: str) -> Serving:
    return serving.servings(graph_of(graph))[task]


TALK = serving_of("qwen3_omni", "chat")
SPEAK = serving_of("orpheus", "speak")
LOOK = serving_of("shapes", "image_to_text")


def wav(count: int, rate: int = 24000, channels: int = 1) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.ones((count, channels), np.int16), rate, format="WAV")
    return buffer.getvalue()


class Talker:
    """The run of one response."""

    def __init__(self, body: dict[str, Any], found: Serving) -> None:
        self.body = body
        self.submit = read_request(RunId("a" * 32), found.name, found.task, body, 60.0)
        self.sent: list[Any] = []
        self.run = LiveRun(self.submit, "talk", self._hear)
        self.run.take(m.Accepted(run=self.run.id, seed=1))

    def _hear(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, m.Abort):
            self.end(ErrorInfo(code="cancelled", message="cancelled"))

    def say(self, text: str = "", sound: bytes = b"", at: tuple[int, ...] = ()) -> None:
        """`at`: the iteration that the text comes from; none for one from outside any loop."""
        if text:
            self._put("text", m.Small(value=text), at)
        if sound:
            self._put("audio", m.Blob(data=sound))

    def _put(self, name: str, value: m.Value, at: tuple[int, ...] = ()) -> None:
        self.run.take(m.Output(run=self.run.id, name=name, index=0, value=value, modality=name, iteration=at))

    def end(self, error: ErrorInfo | None = None, loops: tuple[m.LoopEnd, ...] = ()) -> None:
        self.run.take(m.Finished(run=self.run.id, error=error, loops=loops, read=30, found=10))


class Peer:
    """The client's end, and the socket of the service's."""

    application_state = WebSocketState.CONNECTED

    def __init__(self, found: Serving) -> None:
        self._inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._outbox: asyncio.Queue[str] = asyncio.Queue()
        self.runs: list[Talker] = []
        self.refuse: Exception | None = None
        self._found = found
        socket: Any = self
        managed: Any = type("Managed", (), {"id": "talk"})()
        self.session = Session(socket, lambda: Resolved(managed, self._found), self._submit)

    def _submit(self, _found: Resolved, body: dict[str, Any]) -> LiveRun:
        if self.refuse is not None:
            raise self.refuse
        self.runs.append(Talker(body, self._found))
        return self.runs[-1].run

    async def receive(self) -> dict[str, Any]:
        return await self._inbox.get()

    async def send_text(self, text: str) -> None:
        await self._outbox.put(text)

    async def send(self, kind: str, **fields: Any) -> None:
        await self.put({"text": json.dumps({"type": kind, **fields})})

    async def put(self, message: dict[str, Any]) -> None:
        await self._inbox.put({"type": "websocket.receive", **message})

    async def leave(self) -> None:
        await self._inbox.put({"type": "websocket.disconnect"})

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return json.loads(await self._outbox.get())

    async def until(self, kind: str) -> list[dict[str, Any]]:
        found = [await self.next()]
        while found[-1]["type"] != kind:
            assert found[-1]["type"] != "error" or kind == "error", found[-1]
            found.append(await self.next())
        return found

    async def cleared(self) -> None:
        """Whatever it says before it has heard `input_audio_buffer.clear`."""
        await self.send("input_audio_buffer.clear")
        while (await self.next())["type"] != "input_audio_buffer.cleared":
            pass

    async def asked(self, kind: str, **fields: Any) -> dict[str, Any]:
        """The first event that follows."""
        await self.send(kind, **fields)
        return await self.next()

    async def say(self, *content: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Add an item of the user's."""
        await self.send(
            "conversation.item.create", item={"type": "message", "role": "user", "content": content}, **fields
        )
        return (await self.until("conversation.item.done"))[-1]["item"]

    async def respond(self, **response: Any) -> Talker:
        await self.send("response.create", response=response)
        created = await self.next()
        assert created["type"] == "response.created", created
        return self.runs[-1]


@asynccontextmanager
async def talking(found: Serving = TALK) -> AsyncGenerator[Peer]:
    peer = Peer(found)
    holding = asyncio.create_task(peer.session.hold())
    assert (await peer.next())["type"] == "session.created"
    yield peer
    await peer.leave()
    async with asyncio.timeout(60):
        await holding


def text(words: str) -> dict[str, str]:
    return {"type": "input_text", "text": words}
