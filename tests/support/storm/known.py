"""The contents of a service: names for paths, and valid requests."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.service.conftest import Running
from tests.unit.service.fakes import PNG
from walkgraph import resources

PICTURE = "data:image/png;base64," + base64.b64encode(PNG).decode()
SMALL = {"graph": "synthetic_search", "placement": "synthetic_search_one_cpu"}
APPROVALS = ("synthetic_approvals", "synthetic_approvals_two_ranks")
ASKING = "publish"
"""The task of that graph which waits for a person."""
TURNING = "turning"
"""The deployment whose version changes."""
SCRATCH = 3
"""Deployments besides those that stay."""
FOLDER = "qwen3-tiny"
"""A folder of weights under the service's root."""
FORM = "multipart/form-data"
TASKS = (
    ("shapes", "text_to_image", {"inputs": {"prompt": "a red circle"}}),
    ("shapes", "image_to_text", {"inputs": {"image": PICTURE}}),
    ("shapes", "edit", {"inputs": {"image": PICTURE, "instruction": "blue"}}),
    ("reach", "act", {"inputs": {"camera": PICTURE, "instruction": "reach", "state": [0.4, -0.8]}}),
    ("orpheus", "speak", {"inputs": {"text": "Hello"}}),
    ("synthetic_search", "search", {}),
)
PICTURES = ("text_to_image", "edit")
SESSION_TASKS = tuple(task for task in TASKS if task[1] == "act")
SESSIONS = ("arm", "leg", "eye")
PAGES = ("page_1", "page_2")
"""Scratch deployments."""
PACK = {"graph": "shapes", "walk": "decode", "items": ["/body/0"], "name": "reader"}
PLACE = {"walk": "image_gen", "source": "llm.velocity"}
STOP = {"walk": "image_gen", "use": "llm", "iteration": 3}


def orpheus() -> dict[str, Any]:
    """Small, at random."""
    graph = json.loads(resources.bundled("graphs")["orpheus"].read_text())
    graph["weights"]["orpheus"]["source"] = "random:orpheus-tiny:0"
    graph["weights"]["snac"]["source"] = "random:snac-tiny:0"
    for task in graph["tasks"].values():
        task["params"]["max_tokens"] |= {"default": 140}
        task["params"]["max_prompt"] |= {"default": 64}
    return graph


@dataclass
class Right:
    """A request that is answered by what was asked for."""

    path: dict[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    kind: str | None = None
    query: dict[str, Any] = field(default_factory=dict[str, Any])
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass
class Known:
    """Pools of names; what an answer tells of goes in, what is asked to go is taken out."""

    dice: random.Random
    runs: list[str] = field(default_factory=list[str])
    pictured: list[str] = field(default_factory=list[str])
    """Runs that make a picture."""
    held: list[str] = field(default_factory=list[str])
    queued: list[str] = field(default_factory=list[str])
    """Runs that wait behind others, and for nothing else."""
    asking: list[str] = field(default_factory=list[str])
    """Runs that wait for a person."""
    keys: list[str] = field(default_factory=list[str])
    scratch: list[str] = field(default_factory=list[str])
    graphs: list[str] = field(default_factory=list[str])
    placements: list[str] = field(default_factory=list[str])
    versions: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Versions of stored graphs."""
    placed: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Versions of stored placements."""
    blueprints: list[str] = field(default_factory=list[str])
    entries: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Versions of stored blueprints."""
    entry: dict[str, Any] = field(default_factory=dict[str, Any])
    """A blueprint as the library has it, stored as `decode`."""
    packed: dict[str, Any] = field(default_factory=dict[str, Any])
    """A graph whose node `reader` stands for a blueprint."""
    taps: list[str] = field(default_factory=list[str])
    breakpoints: list[str] = field(default_factory=list[str])
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def any_of(self, pool: list[str], default: str = "nothing") -> str:
        return self.dice.choice(pool) if pool else default

    def gone(self, pool: list[str], default: str = "nothing") -> str:
        """One less, where some are left for others."""
        return pool.pop(self.dice.randrange(len(pool))) if len(pool) > 1 else default

    def fresh(self, kind: str) -> str:
        return f"{kind}-{next(self.numbers)}"

    def learn(self, label: str, asked: Right, body: Any) -> None:
        """From an answer of 2xx."""
        document, number = label.removeprefix("PUT "), label.removeprefix("POST ")
        if label == "POST /api/v1/runs":
            self._begun(asked.body if isinstance(asked.body, dict) else {}, body["id"])
        elif label in (made := self._made()):
            made[label].append(body["id"])
        elif document in (stored := self._stored()):
            stored[document].append(asked.path["name"])
        elif number in (kept := self._kept()):
            kept[number].append((asked.path["name"], str(body["id"])))
        for pool in (self.runs, self.keys, self.graphs, self.placements, self.blueprints):
            del pool[:-40]

    def _begun(self, body: dict[str, Any], run: str) -> None:
        held = body.get("request", {}).get("hold") is True
        (self.held if held else self.asking if body.get("task") == ASKING else self.runs).append(run)
        if not held and body.get("task") in PICTURES:
            self.pictured.append(run)

    def _made(self) -> dict[str, list[str]]:
        return {
            "POST /api/v1/keys": self.keys,
            "POST /api/v1/deployments": self.scratch,
            "POST /api/v1/deployments/{deployment}/taps": self.taps,
            "POST /api/v1/deployments/{deployment}/breakpoints": self.breakpoints,
        }

    def _stored(self) -> dict[str, list[str]]:
        named = {"graphs": self.graphs, "placements": self.placements, "blueprints": self.blueprints}
        return {f"/api/v1/{kind}/{{name}}": pool for kind, pool in named.items()}

    def _kept(self) -> dict[str, list[tuple[str, str]]]:
        named = {"graphs": self.versions, "placements": self.placed, "blueprints": self.entries}
        return {f"/api/v1/{kind}/{{name}}/versions": pool for kind, pool in named.items()}


async def settle(service: Running, dice: random.Random) -> Known:
    """Set up the contents before the first request."""
    small = tuple(SMALL.values())
    for graph, placement in (("shapes", "shapes_one_cpu"), ("reach", "reach_one_cpu"), small, APPROVALS):
        await service.deploy(graph, placement)
    answer = await service.http.post("/api/v1/deployments", json={"graph": orpheus(), "name": "orpheus"})
    assert answer.status_code == 202, answer.text
    await service.settled("orpheus")
    await _answered(service, "POST", "deployments", {**SMALL, "name": TURNING})
    await service.settled(TURNING)
    known = Known(dice)
    known.entry = await _answered(service, "POST", "blueprints/entry", {"graph": "shapes", "walk": "decode"})
    await _answered(service, "PUT", f"blueprints/{known.entry['name']}", known.entry)
    known.packed = (await _answered(service, "POST", "blueprints/pack", PACK))["graph"]
    taps = "POST /api/v1/deployments/{deployment}/taps"
    for label, count in (("POST /api/v1/runs", 6), ("POST /api/v1/keys", 3), (taps, 4)):
        for _ in range(count):
            asked = RIGHT[label](known)
            answer = await service.http.post(label.split()[1].format(**asked.path), json=asked.body)
            if answer.is_success:
                known.learn(label, asked, answer.json())
    for _ in range(8):
        asked = Right({}, {"deployment": APPROVALS[0], "task": ASKING, "request": {}})
        answer = await service.http.post("/api/v1/runs", json=asked.body)
        if answer.is_success:
            known.learn("POST /api/v1/runs", asked, answer.json())
    for _ in range(8):  # all but the first, which runs, and those at the ends can be moved either way
        deployment, task, body = TASKS[4]
        body = {"deployment": deployment, "task": task, "request": {**body, "hold": True}}
        answer = await service.http.post("/api/v1/runs", json=body)
        if answer.is_success:
            known.queued.append(answer.json()["id"])
    return known


async def _answered(service: Running, method: str, path: str, body: Any) -> Any:
    answer = await service.http.request(method, f"/api/v1/{path}", json=body)
    assert answer.is_success, answer.text
    return answer.json()


# ── right requests, by operation ────────────────────────────────────────────────────────────────


def _asked(known: Known) -> tuple[str, str, dict[str, Any]]:
    deployment, task, body = known.dice.choice(TASKS if known.dice.random() < 0.7 else SESSION_TASKS)
    return deployment, task, {**body, **({"session": known.dice.choice(SESSIONS)} if task == "act" else {})}


def _task(known: Known) -> Right:
    deployment, task, body = _asked(known)
    if known.dice.random() < 0.2:
        return Right({"deployment": "shapes", "task": "text_to_image"}, {"prompt": b"a red circle"}, FORM)
    headers = {"accept": known.dice.choice(("", "application/json", "text/event-stream", "multipart/mixed", "image/*"))}
    return Right({"deployment": deployment, "task": task}, body, headers=headers)


def _run(known: Known) -> Right:
    if len(known.asking) < 6 and known.dice.random() < 0.3:
        return Right({}, {"deployment": APPROVALS[0], "task": ASKING, "request": {}})
    deployment, task, body = _asked(known)
    if len(known.held) < 6 and known.dice.random() < 0.5:
        body = {**body, "hold": True}
    return Right({}, {"deployment": deployment, "task": task, "request": body})


def _infer(known: Known) -> Right:
    prompt = {"name": "prompt", "shape": [1], "datatype": "BYTES", "data": ["a red circle"]}
    body: dict[str, Any] = {"id": "7", "inputs": [prompt]}
    if known.dice.random() < 0.3:
        body["parameters"] = {"binary_data_output": True}
    if known.dice.random() < 0.3:
        text = b"a red circle"
        bare = {"name": "prompt", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(text) + 4}}
        head = json.dumps({"inputs": [bare]}).encode()
        headers = {"inference-header-content-length": str(len(head))}
        data = head + len(text).to_bytes(4, "little") + text
        return Right({"model": "shapes", "version": "text_to_image"}, data, "application/octet-stream", headers=headers)
    return Right({"model": "shapes", "version": "text_to_image"}, body)


def _deploy(known: Known) -> Right:
    if len(known.scratch) >= SCRATCH:
        # No room: the name is taken.
        return Right({}, {**SMALL, "name": "shapes"})
    return Right({}, {**SMALL, "name": known.fresh("scratch")})


def _edit(known: Known) -> Right:
    if known.dice.random() < 0.5:
        return Right({}, {"model": b"shapes", "prompt": b"blue", "image": PNG}, FORM)
    return Right({}, {"model": "shapes", "prompt": "blue", "image": PICTURE})


def _draft(kind: str) -> Callable[[Known], Right]:
    def put(known: Known) -> Right:
        return Right({"name": known.fresh(kind)}, {"description": "a draft"})

    return put


def _entry(known: Known) -> Right:
    return Right({"name": known.fresh("blueprint")}, known.entry)


def _placed(**path: Callable[[Known], str]) -> Callable[[Known], Right]:
    """A right request whose path is filled from pools."""
    return lambda known: Right({name: find(known) for name, find in path.items()})


def _stored(known: Known) -> str:
    return known.dice.choice(("shapes", "reach", "world"))


def _stored_placement(known: Known) -> str:
    return known.dice.choice(("shapes_one_cpu", "reach_one_cpu"))


def _kept_blueprint(known: Known) -> str:
    return str(known.entry["name"])


def _page(known: Known) -> str:
    return known.dice.choice(PAGES)


def _deployment(known: Known) -> str:
    return known.dice.choice(("shapes", "reach", "orpheus"))


def _version(known: Known, pool: list[tuple[str, str]]) -> Right:
    name, number = known.dice.choice(pool) if pool else ("shapes", "1")
    return Right({"name": name, "number": number})


def _shapes(_known: Known) -> str:
    return "shapes"


def _over(known: Known) -> str:
    return known.any_of(known.runs, "0" * 32)


def _pictured(known: Known) -> str:
    return known.any_of(known.pictured[-40:], "0" * 32)


def _with(body: Any, path: Callable[[Known], Right] | None = None) -> Callable[[Known], Right]:
    def right(known: Known) -> Right:
        found = path(known) if path else Right()
        found.body = json.loads(json.dumps(body))
        return found

    return right


def _move(known: Known) -> Right:
    return Right({"run": known.any_of(known.queued)}, {"direction": known.dice.choice(("up", "down"))})


_RUN = _placed(run=_over)
_OF = "/api/v1/deployments/{deployment}"
_CHAT = {
    "model": "shapes",
    "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}],
}
RIGHT: dict[str, Callable[[Known], Right]] = {
    "GET /api/v1/components/{name}": _placed(name=lambda known: known.dice.choice(("flow.noise", "media.picture_in"))),
    "POST /api/v1/deployments": _deploy,
    f"GET {_OF}": _placed(deployment=_deployment),
    f"PUT {_OF}": _with(SMALL, _placed(deployment=lambda known: TURNING)),
    f"DELETE {_OF}": _placed(deployment=lambda known: known.gone(known.scratch)),
    f"GET {_OF}/graph": _placed(deployment=_deployment),
    f"GET {_OF}/placement": _placed(deployment=_deployment),
    f"POST {_OF}/restart": _placed(deployment=lambda known: known.any_of(known.scratch)),
    f"DELETE {_OF}/next": _placed(deployment=lambda known: TURNING),
    f"GET {_OF}/statistics": _placed(deployment=_deployment),
    f"GET {_OF}/traces": _placed(deployment=_deployment),
    f"GET {_OF}/watch": _placed(deployment=_deployment),
    f"PUT {_OF}/watch/level": _with({"level": "full"}, _placed(deployment=_deployment)),
    f"POST {_OF}/taps": _with(PLACE, _placed(deployment=_shapes)),
    f"PATCH {_OF}/taps/{{tap}}": _with(
        {"interval": 1}, _placed(deployment=_shapes, tap=lambda known: known.any_of(known.taps))
    ),
    f"DELETE {_OF}/taps/{{tap}}": _placed(deployment=_shapes, tap=lambda known: known.gone(known.taps)),
    f"POST {_OF}/breakpoints": _with(STOP, _placed(deployment=_shapes)),
    f"DELETE {_OF}/breakpoints/{{breakpoint_}}": _placed(
        deployment=_shapes, breakpoint_=lambda known: known.gone(known.breakpoints)
    ),
    "POST /api/v1/graphs/check": _with(json.loads(resources.bundled("graphs")["reach"].read_text())),
    "POST /api/v1/graphs/python": _with({"graph": "reach"}),
    "POST /api/v1/graphs/simulate": _with({"graph": "shapes", "task": "text_to_image", "inputs": {"prompt": 1}}),
    "GET /api/v1/graphs/{name}/drawing": _placed(name=_stored),
    "GET /api/v1/graphs/{name}": _placed(name=_stored),
    "PUT /api/v1/graphs/{name}": _draft("graph"),
    "PATCH /api/v1/graphs/{name}": _with({"tags": ["kept"]}, _placed(name=_stored)),
    "DELETE /api/v1/graphs/{name}": _placed(name=lambda known: known.gone(known.graphs)),
    "GET /api/v1/graphs/{name}/versions": _placed(name=_stored),
    "POST /api/v1/graphs/{name}/versions": _with({"note": "kept"}, _placed(name=_stored)),
    "GET /api/v1/graphs/{name}/versions/{number}": lambda known: _version(known, known.versions),
    "GET /api/v1/placements/{name}": _placed(name=_stored_placement),
    "PUT /api/v1/placements/{name}": _draft("placement"),
    "PATCH /api/v1/placements/{name}": _with({"tags": []}, _placed(name=_stored_placement)),
    "DELETE /api/v1/placements/{name}": _placed(name=lambda known: known.gone(known.placements)),
    "GET /api/v1/placements/{name}/versions": _placed(name=_stored_placement),
    "POST /api/v1/placements/{name}/versions": _with({}, _placed(name=_stored_placement)),
    "GET /api/v1/placements/{name}/versions/{number}": lambda known: _version(known, known.placed),
    "POST /api/v1/blueprints/pack": _with(PACK),
    "POST /api/v1/blueprints/unpack": lambda known: Right({}, {"graph": known.packed, "node": "reader"}),
    "POST /api/v1/blueprints/take": _with({"graph": {"name": "mine"}, "blueprint": "decode"}),
    "POST /api/v1/blueprints/entry": _with({"graph": "shapes", "walk": "decode"}),
    "GET /api/v1/blueprints/{name}": _placed(name=_kept_blueprint),
    "PUT /api/v1/blueprints/{name}": _entry,
    "PATCH /api/v1/blueprints/{name}": _with({"tags": ["kept"]}, _placed(name=_kept_blueprint)),
    "DELETE /api/v1/blueprints/{name}": _placed(name=lambda known: known.gone(known.blueprints)),
    "GET /api/v1/blueprints/{name}/versions": _placed(name=_kept_blueprint),
    "POST /api/v1/blueprints/{name}/versions": _with({"note": "kept"}, _placed(name=_kept_blueprint)),
    "GET /api/v1/blueprints/{name}/versions/{number}": lambda known: _version(known, known.entries),
    "PUT /api/v1/scratch/{deployment}": _with(SMALL, _placed(deployment=_page)),
    "DELETE /api/v1/scratch/{deployment}": _placed(deployment=_page),
    "GET /api/v1/checkpoints/{folder}/documents": _placed(folder=lambda known: FOLDER),
    "POST /api/v1/keys": lambda known: Right({}, {"name": known.fresh("key"), "scopes": ["infer"]}),
    "GET /api/v1/keys/{key}": _placed(key=lambda known: known.any_of(known.keys)),
    "DELETE /api/v1/keys/{key}": _placed(key=lambda known: known.gone(known.keys)),
    "GET /v2/models/{model}": _placed(model=_deployment),
    "GET /v2/models/{model}/ready": _placed(model=_deployment),
    "GET /v2/models/{model}/versions/{version}": _placed(model=_shapes, version=lambda known: "edit"),
    "GET /v2/models/{model}/versions/{version}/ready": _placed(model=_shapes, version=lambda known: "edit"),
    "POST /v2/models/{model}/infer": _infer,
    "POST /v2/models/{model}/versions/{version}/infer": _infer,
    "POST /v1/audio/speech": _with({"model": "orpheus", "input": "Hello", "response_format": "wav"}),
    "POST /v1/chat/completions": _with(_CHAT),
    "POST /v1/images/generations": _with({"model": "shapes", "prompt": "a red circle"}),
    "POST /v1/images/edits": _edit,
    "GET /v1/models/{model}": _placed(model=lambda known: known.dice.choice(("shapes", "shapes/edit"))),
    "POST /api/v1/plans": _with({"graph": "shapes", "placement": "shapes_one_cpu"}),
    "POST /api/v1/runs/{run}/replay": _with({"record": False}, _placed(run=_pictured)),
    "GET /api/v1/runs/{run}/differences/{other}": _placed(run=_over, other=_over),
    "GET /api/v1/queue": lambda known: Right(query={"deployment": _deployment(known)}),
    "DELETE /api/v1/queue": lambda known: Right(query={"deployment": "synthetic_search"}),
    "POST /api/v1/queue/{run}/move": _move,
    "POST /api/v1/runs": _run,
    "GET /api/v1/runs/{run}": _RUN,
    "DELETE /api/v1/runs/{run}": _placed(run=lambda known: known.gone(known.held, _over(known))),
    "GET /api/v1/runs/{run}/result": _RUN,
    "GET /api/v1/runs/{run}/thumbnail": _placed(run=_pictured),
    "GET /api/v1/runs/{run}/request": _RUN,
    "GET /api/v1/runs/{run}/events": _RUN,
    "GET /api/v1/runs/{run}/trace": _RUN,
    "GET /api/v1/runs/{run}/why": _RUN,
    "POST /api/v1/runs/{run}/steer": _with(
        {"action": "step"}, _placed(run=lambda known: known.any_of(known.held, "0" * 32))
    ),
    "GET /api/v1/runs/{run}/approval": _placed(run=lambda known: known.any_of(known.asking, "0" * 32)),
    "POST /api/v1/runs/{run}/approval": _with(
        {"approved": True}, _placed(run=lambda known: known.gone(known.asking, "0" * 32))
    ),
    "GET /v1/sessions/{deployment}": _placed(deployment=_deployment),
    "DELETE /v1/sessions/{deployment}/{session}": _placed(
        deployment=lambda known: "reach", session=lambda known: known.dice.choice(SESSIONS)
    ),
    "GET /v1/tasks/{deployment}": _placed(deployment=_deployment),
    "GET /v1/tasks/{deployment}/{task}": _placed(deployment=_shapes, task=lambda known: "edit"),
    "POST /v1/tasks/{deployment}/{task}": _task,
}
"""Valid requests of every operation that takes one; the others need only their path."""
