"""A service that answers from memory, and both kinds of client on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from walkgraph.client import AsyncClient, Client

URL = "http://127.0.0.1:1"
TASK: dict[str, Any] = {
    "deployment": "shapes",
    "name": "draw",
    "label": "Draw",
    "inputs": {
        "prompt": {"modality": "text", "many": True, "optional": False, "description": ""},
        "image": {"modality": "image", "many": False, "optional": True, "description": ""},
        "sound": {"modality": "audio", "many": False, "optional": True, "description": ""},
        "state": {"modality": "state", "many": True, "optional": True, "description": ""},
    },
    "outputs": ["image", "preview", "text"],
    "params": {"steps": {"type": "integer", "default": 50}, "cfg": {"type": "number", "default": 1.0}},
    "session": True,
    "schema": {},
}
Answer = httpx.Response | Exception


@dataclass
class Memory:
    """Gives its answers in their order, the last one again and again; remembers what it was asked."""

    answers: list[Answer]
    asked: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        try:
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        except httpx.ResponseNotRead:
            return answer

    @property
    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.asked if request.content]


def blocking(memory: Memory, **more: Any) -> Client:
    return Client(URL, "token", transport=httpx.MockTransport(memory), **more)


def awaiting(memory: Memory, **more: Any) -> AsyncClient:
    return AsyncClient(URL, "token", transport=httpx.MockTransport(memory), **more)


def either(kind: str, memory: Memory, name: str, *args: Any, **more: Any) -> Any:
    """Returns the result of the method `name` of one kind of client."""
    if kind == "blocking":
        with blocking(memory) as client:
            return getattr(client, name)(*args, **more)

    async def call() -> Any:
        async with awaiting(memory) as client:
            return await getattr(client, name)(*args, **more)

    return asyncio.run(call())


def streamed(kind: str, memory: Memory, begin: Callable[[Any], Any]) -> list[Any]:
    """All that an iterator of one kind of client gives; `begin` makes it of the client."""
    if kind == "blocking":
        with blocking(memory) as client:
            found: Iterator[Any] = begin(client)
            return list(found)

    async def call() -> list[Any]:
        async with awaiting(memory) as client:
            found: AsyncIterator[Any] = begin(client)
            return [one async for one in found]

    return asyncio.run(call())


def events(*told: tuple[str, dict[str, Any]]) -> httpx.Response:
    text = "".join(f"event: {name}\nid: 1\ndata: {json.dumps(data)}\n\n" for name, data in told)
    return httpx.Response(200, text=f": \n\n{text}", headers={"Content-Type": "text/event-stream"})


def output(name: str, index: int, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "output", {"run": "r", "name": name, "index": index, "iteration": [index], "value": value}


DONE = ("done", {"run": "r", "seconds": 0.5, "queued": 0.25, "times": [], "usage": {"read": 3}})
ACCEPTED = ("accepted", {"run": "r", "seed": 7})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}
