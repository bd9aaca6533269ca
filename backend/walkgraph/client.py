"""A small typed client of the control service: what the command line and the studio's pages speak with.

with Client.local(Settings()) as client:
    for event in client.stream("shapes", "text_to_image", {"inputs": {"prompt": "a red circle"}}):
        ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import quote
from weakref import WeakSet

import httpx
import msgspec

from walkgraph.settings import Settings, read_token

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

TIMEOUT = httpx.Timeout(10.0, read=60.0)
"""Of everything but runs and undeploying, which take as long as they take."""
FRAME_BYTES = 4 * 1024 * 1024
"""Largest frame of telemetry that is read."""
CLOSE_SECONDS = 0.5
"""The service's word that telemetry is closed stands behind frames that nobody reads any more."""

Kind = Literal["graph", "placement"]
Level = Literal["off", "summary", "full"]


class ClientError(Exception):
    """Something came back that is no answer, or nothing did."""


class Unreachable(ClientError):
    """There is no service to speak with."""


@dataclass(frozen=True)
class Fault:
    pointer: str
    code: str
    message: str


class ProblemError(ClientError):
    """The service said no, and why."""

    def __init__(self, status: int, content: Mapping[str, Any]) -> None:
        super().__init__(str(content.get("detail", "the service refused the request")))
        self.status = status
        self.code = str(content.get("code", "internal_error"))
        self.retryable = bool(content.get("retryable", False))
        self.faults = tuple(
            Fault(str(e.get("pointer", "")), str(e.get("code", "")), str(e.get("message", "")))
            for e in content.get("errors", ())
        )
        self.content = dict(content)


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a running service leaves in its home for those on the same machine."""

    pid: int
    url: str


@dataclass(frozen=True)
class Event:
    """What a followed run tells: `accepted`, `output`, `done` or `error`."""

    name: str
    data: dict[str, Any]


class Client:
    def __init__(self, url: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        # The machine's proxies are for other machines.
        self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT, transport=transport, trust_env=False)
        self.url = url
        self._token = token
        self._followed: WeakSet[ClientConnection] = WeakSet()
        """Sockets of the telemetry that is followed."""

    @classmethod
    def local(cls, settings: Settings) -> Self:
        """The service that runs in this home. Raises Unreachable."""
        address, token = read_address(settings), read_token(settings)
        if address is None or token is None:
            raise Unreachable(f"no Walkgraph service is running in `{settings.home}`; start one with `walkgraph up`")
        return cls(address.url, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Also of what is followed: the iterators of `telemetry` end."""
        for socket in tuple(self._followed):
            socket.close()
        self._http.close()

    # ── state ───────────────────────────────────────────────────────────────────────────────────

    def ready(self, deployment: str | None = None) -> bool:
        with self._reached():
            answer = self._http.get("/health/ready", params={"deployment": deployment} if deployment else {})
        return answer.status_code == httpx.codes.OK

    def deployments(self) -> list[dict[str, Any]]:
        return self._get("/api/v1/deployments")

    def deployment(self, id_: str) -> dict[str, Any]:
        return self._get(f"/api/v1/deployments/{id_}")

    def follow_deployment(self, id_: str) -> Iterator[dict[str, Any]]:
        """How it is now, and then at every change, until it can't get ready any more or is gone."""
        found = self.deployment(id_)
        while True:
            yield found
            found = self._get(f"/api/v1/deployments/{id_}", {"after": found["revision"]})

    def deployed_graph(self, id_: str) -> dict[str, Any]:
        return self._get(f"/api/v1/deployments/{id_}/graph")

    def deploy(self, graph: Any, placement: Any | None = None, name: str | None = None) -> dict[str, Any]:
        """`graph` and `placement`: names of stored documents, or documents."""
        return self._send("POST", "/api/v1/deployments", {"graph": graph, "placement": placement, "name": name})

    def replace(self, id_: str, graph: Any, placement: Any | None = None) -> dict[str, Any]:
        """Switch a deployment to another graph or placement; its `next` tells how far that is."""
        return self._send("PUT", f"/api/v1/deployments/{id_}", {"graph": graph, "placement": placement})

    def restart(self, id_: str) -> dict[str, Any]:
        """A switch to the same documents."""
        return self._send("POST", f"/api/v1/deployments/{id_}/restart", {})

    def undeploy(self, id_: str, grace: float = 5.0) -> None:
        with self._reached():
            answer = self._http.delete(f"/api/v1/deployments/{id_}", params={"grace": grace}, timeout=grace + 60)
        _checked(answer)

    # ── documents ───────────────────────────────────────────────────────────────────────────────

    def graphs(self) -> list[dict[str, Any]]:
        return self._get("/api/v1/graphs")

    def graph(self, name: str) -> dict[str, Any]:
        return self._get(f"/api/v1/graphs/{name}")

    def placements(self) -> list[dict[str, Any]]:
        return self._get("/api/v1/placements")

    def gallery(self) -> list[dict[str, Any]]:
        """Every graph with its tasks, and whether it can be deployed here."""
        return self._get("/api/v1/gallery")

    def document(self, kind: Kind, name: str) -> tuple[dict[str, Any], str]:
        """A stored document and its etag."""
        with self._reached():
            answer = _checked(self._http.get(f"/api/v1/{kind}s/{name}"))
        return answer.json(), answer.headers["etag"]

    def put_document(self, kind: Kind, name: str, document: Any, etag: str | None = None) -> dict[str, Any]:
        """Save a draft; with the etag of the one it replaces, without for a new one. Raises ProblemError."""
        headers = {"If-Match": etag} if etag else {}
        with self._reached():
            answer = self._http.put(f"/api/v1/{kind}s/{name}", json=document, headers=headers)
        return _checked(answer).json()

    def delete_document(self, kind: Kind, name: str) -> None:
        """A bundled one is as it was shipped afterwards, others are gone."""
        with self._reached():
            _checked(self._http.delete(f"/api/v1/{kind}s/{name}"))

    def tag_document(self, kind: Kind, name: str, tags: Sequence[str]) -> dict[str, Any]:
        return self._send("PATCH", f"/api/v1/{kind}s/{name}", {"tags": list(tags)})

    def versions(self, kind: Kind, name: str) -> list[dict[str, Any]]:
        """Newest first."""
        return self._get(f"/api/v1/{kind}s/{name}/versions")

    def components(self) -> list[dict[str, Any]]:
        return self._get("/api/v1/components")

    def check(self, document: Any) -> dict[str, Any]:
        return self._send("POST", "/api/v1/graphs/check", document)

    def plan(self, graph: Any, placement: Any | None = None) -> dict[str, Any]:
        return self._send("POST", "/api/v1/plans", {"graph": graph, "placement": placement})

    # ── tasks and runs ──────────────────────────────────────────────────────────────────────────

    def tasks(self, deployment: str) -> list[dict[str, Any]]:
        return self._get(f"/v1/tasks/{deployment}")

    def task(self, deployment: str, task: str) -> dict[str, Any]:
        return self._get(f"/v1/tasks/{deployment}/{task}")

    def run(self, deployment: str, task: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run a task and return its result. Raises ProblemError, also where the run failed."""
        return self._send("POST", f"/v1/tasks/{deployment}/{task}", dict(request), timeout=None)

    def stream(self, deployment: str, task: str, request: Mapping[str, Any]) -> Iterator[Event]:
        """Run a task and tell its events as they come; the run ends with this iterator."""
        body = {**request, "stream": True}
        with (
            self._reached(),
            self._http.stream("POST", f"/v1/tasks/{deployment}/{task}", json=body, timeout=None) as answer,
        ):
            yield from _told(answer)

    def follow_run(self, run: str) -> Iterator[Event]:
        """All that it tells, from its start to its end; it goes on without this iterator."""
        path = f"/api/v1/runs/{run}/events"
        with self._reached(), self._http.stream("GET", path, timeout=None) as answer:
            yield from _told(answer)

    def runs(self, deployment: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        params: dict[str, str | int] = {"limit": limit, **({"deployment": deployment} if deployment else {})}
        return self._get("/api/v1/runs", params)

    def start_run(self, deployment: str, task: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Start one that needs no client. With `"record": true` it can be compared with another one, with
        `"hold": true` it starts paused."""
        return self._send("POST", "/api/v1/runs", {"deployment": deployment, "task": task, "request": dict(request)})

    def get_run(self, run: str) -> dict[str, Any]:
        """How it is; `paused` tells what it is paused before."""
        return self._get(f"/api/v1/runs/{run}")

    def result(self, run: str) -> dict[str, Any]:
        """Its outputs so far; all of them once its `state` is `done`."""
        return self._get(f"/api/v1/runs/{run}/result")

    def cancel(self, run: str) -> None:
        with self._reached():
            _checked(self._http.delete(f"/api/v1/runs/{run}"))

    # ── looking inside ──────────────────────────────────────────────────────────────────────────

    def watch(self, deployment: str) -> dict[str, Any]:
        """The level of its telemetry, its taps and its breakpoints."""
        return self._get(f"/api/v1/deployments/{deployment}/watch")

    def set_level(self, deployment: str, level: Level) -> dict[str, Any]:
        return self._send("PUT", f"/api/v1/deployments/{deployment}/watch/level", {"level": level})

    def tap(self, deployment: str, walk: str, source: str, **more: Any) -> dict[str, Any]:
        """Look at the values that leave `use.port`, or come in as `@in.name`; they come as samples in the frames of
        `telemetry`. `more`: `interval` and `seconds` (until it goes by itself), `preview`, `run`."""
        return self._send("POST", f"/api/v1/deployments/{deployment}/taps", {"walk": walk, "source": source, **more})

    def change_tap(self, deployment: str, tap: str, interval: float) -> dict[str, Any]:
        """`interval`: seconds between two samples of a rank."""
        return self._send("PATCH", f"/api/v1/deployments/{deployment}/taps/{tap}", {"interval": interval})

    def remove_tap(self, deployment: str, tap: str) -> None:
        with self._reached():
            _checked(self._http.delete(f"/api/v1/deployments/{deployment}/taps/{tap}"))

    def set_breakpoint(self, deployment: str, walk: str, use: str, **more: Any) -> dict[str, Any]:
        """Pause runs before the calls of a use. `more`: `iteration` (of the innermost loop), `run`, `seconds`."""
        return self._send("POST", f"/api/v1/deployments/{deployment}/breakpoints", {"walk": walk, "use": use, **more})

    def remove_breakpoint(self, deployment: str, id_: str) -> None:
        with self._reached():
            _checked(self._http.delete(f"/api/v1/deployments/{deployment}/breakpoints/{id_}"))

    def steer(
        self,
        run: str,
        action: Literal["pause", "step", "iteration", "resume"],
        call: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """`call`: for `step` and `iteration`, one of those that are held; None: the first."""
        return self._send("POST", f"/api/v1/runs/{run}/steer", {"action": action, "call": call})

    def replay(self, run: str, deployment: str | None = None, *, record: bool = True) -> dict[str, Any]:
        """Start it once more, with the same inputs, parameters and seed."""
        return self._send("POST", f"/api/v1/runs/{run}/replay", {"deployment": deployment, "record": record})

    def differences(self, a: str, b: str) -> dict[str, Any]:
        """Of two runs that were recorded, value by value; of others, of their outputs."""
        return self._get(f"/api/v1/runs/{a}/differences/{b}")

    # ── traces ──────────────────────────────────────────────────────────────────────────────────

    def trace(self, run: str) -> dict[str, Any]:
        """What a run did, on which rank, when; also while it goes on."""
        return self._get(f"/api/v1/runs/{run}/trace")

    def trace_file(self, run: str, form: Literal["perfetto", "otlp"]) -> bytes:
        with self._reached():
            return _checked(self._http.get(f"/api/v1/runs/{run}/trace", params={"format": form})).content

    def why(self, run: str) -> dict[str, Any]:
        """Where its time went, and what it waited for."""
        return self._get(f"/api/v1/runs/{run}/why")

    def traces(self, deployment: str, limit: int = 20, task: str | None = None) -> list[dict[str, Any]]:
        """Those that are kept, newest first."""
        more = {} if task is None else {"task": task}
        return self._get(f"/api/v1/deployments/{deployment}/traces", {"limit": limit, **more})

    def statistics(self, deployment: str, task: str | None = None) -> dict[str, Any]:
        """What its nodes took, over the traces that are kept."""
        return self._get(f"/api/v1/deployments/{deployment}/statistics", {"task": task} if task else None)

    def telemetry(self, deployment: str, every: float = 1.0) -> Iterator[dict[str, Any] | None]:
        """Frames as they come, until the service or this client closes; None where none came for `every` seconds."""
        from websockets.exceptions import ConnectionClosed, InvalidHandshake
        from websockets.sync.client import connect

        address = f"ws{self.url.removeprefix('http')}/ws/v1/telemetry?deployment={quote(deployment, safe='')}"
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            with connect(
                address, additional_headers=headers, proxy=None, max_size=FRAME_BYTES, close_timeout=CLOSE_SECONDS
            ) as socket:
                self._followed.add(socket)
                while True:
                    try:
                        yield json.loads(socket.recv(every))
                    except TimeoutError:
                        yield None
        except ConnectionClosed:
            return
        except (OSError, InvalidHandshake):
            raise Unreachable(f"the telemetry of {self.url} can't be followed; see `walkgraph status`") from None

    def studio_address(self) -> str:
        """An address that lets one browser into the studio, once."""
        return self.url + self._send("POST", "/api/v1/studio/codes", {})["path"]

    # ── sending ─────────────────────────────────────────────────────────────────────────────────

    def _get(self, path: str, params: Mapping[str, str | int] | None = None) -> Any:
        with self._reached():
            answer = self._http.get(path, params=params)
        return _checked(answer).json()

    def _send(self, method: str, path: str, body: Any, timeout: httpx.Timeout | None = TIMEOUT) -> Any:
        with self._reached():
            answer = self._http.request(method, path, json=body, timeout=timeout)
        return _checked(answer).json()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError:
            raise Unreachable(f"nothing answers at {self.url}; start the service with `walkgraph up`") from None
        except httpx.HTTPError:
            raise Unreachable(f"the service at {self.url} did not answer to the end; see its log") from None


def read_address(settings: Settings) -> Address | None:
    try:
        return msgspec.json.decode(settings.address_file.read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    try:
        content = answer.json()
    except ValueError:
        content = {}
    raise ProblemError(answer.status_code, content if isinstance(content, dict) else {})


def _told(answer: httpx.Response) -> Iterator[Event]:
    if answer.status_code != httpx.codes.OK:
        answer.read()
    _checked(answer)
    yield from _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Event]:
    """Server-sent events: `event:` and `data:` lines up to an empty one; lines that start with a colon say nothing."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield Event(name, json.loads(line.removeprefix("data: ")))
