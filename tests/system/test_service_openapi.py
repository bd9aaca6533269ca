"""Requests made from the published OpenAPI document: answers match it, and nothing fails."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.checkpoints import language_model
from tests.support.storm import cases as made_cases
from tests.support.storm.cases import BEARER, Case
from tests.support.storm.fleet import AbleFleet
from tests.support.storm.judge import Answer, Ask, Published, ask, typed
from tests.support.storm.known import Known, settle
from tests.unit.service.conftest import Running, quiet, serving
from walkgraph.service.access.access import OPEN_PATHS
from walkgraph.settings import Settings
from walkgraph.store.session import Store

SEED = 20261122
SERVED, EACH = 3, 800
"""Right answers of each operation, at least: one for so many requests in all, and no more than `SERVED`."""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    roots = tmp_path / "weights"
    language_model("qwen3", roots)
    found = Settings(home=home, studio=False, checkpoint_roots=(roots,))
    Store.open(found.database).close()
    with quiet():
        async with serving(found, AbleFleet()) as running:
            yield running


@dataclass
class Storm:
    """The answers, and their faults."""

    published: dict[str, Published]
    answered: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    faults: dict[str, str] = field(default_factory=dict[str, str])
    """The first request for each, by what is wrong."""

    def hear(self, label: str, asked: Ask, answer: Answer) -> None:
        self.answered[label][answer.status] += 1
        for fault in self._faults(label, asked, answer):
            self.faults.setdefault(f"{label}: {fault}", f"{asked.path} {asked.headers[1:]} {asked.body[:400]!r}")

    def _faults(self, label: str, asked: Ask, answer: Answer) -> list[str]:
        path = asked.path.partition("?")[0]
        found = self.published[label].faults(answer)
        if answer.status >= 500 and answer.status != 503:
            found.append(f"{answer.status}: {answer.body[:300]!r}")
        if answer.status >= 400 and "/health" not in path and not path.endswith("/ready"):
            found.extend(typed(path, answer))
        return found

    def table(self) -> str:
        lines = (f"{label:70} {sum(found.values()):5}  {dict(sorted(found.items()))}" for label, found in self.sorted())
        return "\n".join(lines)

    def sorted(self) -> list[tuple[str, Counter[int]]]:
        return sorted(self.answered.items())


def labels(document: dict[str, Any]) -> dict[str, Published]:
    components = document.get("components", {})
    return {
        f"{method.upper()} {path}": Published(operation["responses"], components)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


async def send(service: Running, storm: Storm, known: Known, case: Case) -> None:
    fitted = made_cases.fitted(case, known)
    asked = made_cases.sent(case, fitted)
    try:
        answer = await ask(service.app, asked)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told with its request
        storm.faults.setdefault(f"{case.label}: {type(error).__name__}: {error}", f"{asked}"[:800])
        return
    if answer.status == 307:
        # Another path: an empty part of this one.
        return
    storm.hear(case.label, asked, answer)
    if 200 <= answer.status < 300:
        told = json.loads(answer.body) if answer.body and answer.kind == "application/json" else None
        known.learn(case.label, fitted, told)


async def refused(service: Running, storm: Storm) -> None:
    """Requests to every operation without a token, and to foreign hosts."""
    for label in storm.published:
        method, path = label.split(" ")
        path = path.replace("{run}", "0" * 32).replace("{", "").replace("}", "")
        for headers in ((("accept", "*/*"),), (BEARER, ("host", "evil.example")), (BEARER, ("x-y", "y" * 40_000))):
            asked = Ask(method, path, headers)
            answer = await ask(service.app, asked)
            storm.answered[label][answer.status] += 1
            assert answer.status in (401, 421, 431) or path in OPEN_PATHS, (label, answer)
            assert answer.status == 200 or typed(path, answer) == [], (label, answer)


SOUND = {"x-request-id": "a", "content-type": "application/json", "x-content-type-options": "nosniff"}
PROBLEM = b'{"type": "urn:walkgraph:problem:refused", "detail": "%s"}'
WRONG: dict[str, tuple[Answer, str]] = {
    "a status": (Answer(201, SOUND, b"{}"), "201 is not published"),
    "a type": (Answer(200, {**SOUND, "content-type": "text/html"}, b"{}"), "is text/html"),
    "a body": (Answer(200, SOUND, b'{"n": "1"}'), "is not of type"),
    "a body where there is none": (Answer(204, SOUND, b"{}"), "without content"),
    "no id": (Answer(204, {**SOUND, "x-request-id": "a b"}, b""), "x-request-id"),
    "no time": (Answer(503, SOUND, b"{}"), "try again"),
    "a type that may be guessed": (Answer(204, {"x-request-id": "a"}, b""), "guessed"),
}


@pytest.mark.parametrize("row", WRONG)
def test_an_answer_that_is_not_published_is_found(row: str) -> None:
    one = {"type": "object", "properties": {"n": {"$ref": "#/components/n"}}, "required": ["n"]}
    contents = {"200": {"content": {"application/json": {"schema": one}}}, "204": {}, "5XX": {}}
    published = Published(contents, {"n": {"type": "integer"}})
    answer, words = WRONG[row]
    assert any(words in fault for fault in published.faults(answer)), published.faults(answer)
    assert published.faults(Answer(200, SOUND, b'{"n": 1}')) == []


def test_an_error_in_another_dialect_or_with_what_it_must_not_tell_is_found() -> None:
    problem = {**SOUND, "content-type": "application/problem+json"}
    assert typed("/api/v1/runs", Answer(404, problem, PROBLEM % b"no such run")) == []
    assert typed("/api/v1/runs", Answer(404, SOUND, PROBLEM % b"no such run")) != []
    for told in (b"/tmp/x", b"at 0x7f31a0b2c3d4", b"Traceback", b"in runs.py"):
        assert typed("/api/v1/runs", Answer(404, problem, PROBLEM % told)) != [], told


@pytest.mark.safety("S1")
@pytest.mark.slow
async def test_what_is_published_is_what_is_answered(
    service: Running, openapi_cases: int, scale: Scale, figure: Figure
) -> None:
    openapi_cases = scale(openapi_cases, 20_000)
    document = service.app.openapi()
    known = await settle(service, random.Random(SEED))
    storm = Storm(labels(document))
    found = made_cases.made(document, openapi_cases, SEED)
    for case in found:
        await send(service, storm, known, case)
    told = storm.table()
    assert not storm.faults, "\n".join(f"{fault}\n    {asked}" for fault, asked in storm.faults.items())
    assert sum(sum(statuses.values()) for statuses in storm.answered.values()) >= openapi_cases, told
    served = {label: sum(n for status, n in storm.answered[label].items() if status < 300) for label in storm.published}
    figure("requests, no 500 and every answer as published", openapi_cases, at_least=20_000)
    few = {label: n for label, n in served.items() if n < min(SERVED, openapi_cases // EACH)}
    assert few == {}, told
    await refused(service, storm)
    never = [label for label, statuses in storm.answered.items() if not any(400 <= s < 500 for s in statuses)]
    assert never == [], told
