"""Compares an answer with the answers that a service publishes for an operation."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from tests.unit.service.conftest import TOKEN
from walkgraph.service.http.dialects import dialect_of

HOST = "127.0.0.1:8421"
SECONDS = 60.0
"""For one answer: what takes longer hangs."""
REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
UNTOLD = re.compile(
    r"Traceback|/dev/shm|/work/|/tmp/|/home/|site-packages|\.py\b|0x[0-9a-f]{6,}|sqlite|pydantic|errors\.pydantic|"
    + TOKEN
)
"""Texts that no error may contain: paths and implementation details."""


@dataclass(frozen=True)
class Ask:
    method: str
    path: str
    """Encoded, as a client sends it, with its query."""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip()


async def ask(app: Any, asked: Ask) -> Answer:
    """One request through the whole application, without a network."""
    path, _, query = asked.path.partition("?")
    fields = [("host", HOST), ("content-length", str(len(asked.body)))] if asked.body else [("host", HOST)]
    given = {name for name, _ in asked.headers}
    sent = [*(f for f in fields if f[0] not in given), *asked.headers]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": asked.method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8421),
        "state": {},
        "extensions": {},
    }
    given_whole, over = False, asyncio.Event()
    start: dict[str, Any] = {}
    chunks: list[bytes] = []

    async def receive() -> dict[str, Any]:
        nonlocal given_whole
        if not given_whole:
            given_whole = True
            return {"type": "http.request", "body": asked.body, "more_body": False}
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            start.update(message)
        else:
            chunks.append(message.get("body", b""))
            if not message.get("more_body", False):
                over.set()

    async with asyncio.timeout(SECONDS):
        await app(scope, receive, send)
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(start["status"], headers, b"".join(chunks))


@dataclass
class Published:
    """The answers of one operation."""

    responses: dict[str, Any]
    components: dict[str, Any]
    _validators: dict[tuple[str, str], Any] = field(default_factory=dict)

    def faults(self, answer: Answer) -> list[str]:
        """The parts of an answer that are not published or are wrong."""
        return [*self._of_body(answer), *_of_headers(answer)]

    def _of_body(self, answer: Answer) -> Iterable[str]:
        exact, of_class = str(answer.status), f"{answer.status // 100}XX"
        key = exact if exact in self.responses else of_class
        if key not in self.responses:
            yield f"the status {answer.status} is not published"
            return
        contents: dict[str, Any] = self.responses[key].get("content", {})
        if not contents:
            if answer.body:
                yield f"{key} is published without content, and has {answer.kind}"
            return
        kind = next((kind for kind in contents if _fits(answer.kind, kind)), None)
        if kind is None:
            yield f"{key} is published as {'/'.join(contents)}, and is {answer.kind or 'of no type'}"
        elif kind == "application/json" or kind.endswith("+json"):
            yield from self._of_json(key, kind, contents[kind].get("schema", {}), answer)

    def _of_json(self, key: str, kind: str, schema: dict[str, Any], answer: Answer) -> Iterable[str]:
        validator = self._validators.get((key, kind))
        if validator is None:
            validator = jsonschema_rs.Draft202012Validator({"allOf": [schema], "components": self.components})
            self._validators[key, kind] = validator
        value = json.loads(answer.body)
        for error in list(validator.iter_errors(value))[:2]:
            yield f"{key}: {error.message[:300]} at {list(error.instance_path)}"


def _fits(kind: str, published: str) -> bool:
    return kind == published or (published.endswith("/*") and kind.startswith(published[:-1]))


def _of_headers(answer: Answer) -> Iterable[str]:
    headers = answer.headers
    if not REQUEST_ID.fullmatch(headers.get("x-request-id", "")):
        yield f"x-request-id is {headers.get('x-request-id')!r}"
    # A failure that trying again can't help says so instead of when.
    hopeless = headers.get("x-should-retry") == "false"
    if answer.status in (429, 503) and not hopeless and not 1 <= int(headers.get("retry-after", "0")) <= 30:
        yield f"{answer.status} without a time to try again after"
    if any(character in value for value in headers.values() for character in "\r\n\0"):
        yield "a header has a line's end in it"
    if headers.get("x-content-type-options") != "nosniff":
        yield "its type may be guessed"


def typed(path: str, answer: Answer) -> list[str]:
    """The parts of an error that differ from the form for its path's clients."""
    told = json.loads(answer.body)
    match dialect_of(path):
        case "openai":
            kind, right = "application/json", told["error"].keys() == {"message", "type", "param", "code"}
        case "kserve":
            kind, right = "application/json", isinstance(told["error"], str)
        case "native":
            kind, right = "application/problem+json", told["type"].startswith("urn:walkgraph:problem:")
    found = [] if right and answer.kind == kind else ["the error is not in its path's dialect"]
    said = UNTOLD.search(answer.body.decode())
    return [*found, *([f"it tells {said.group()!r}"] if said else [])]
