"""Mutated graph documents against the service: no 500, none takes long, and drafts come back as they were given."""

from __future__ import annotations

import json
import random
import resource
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.safety.plugin import Figure, Scale
from tests.support.yardstick import fastest_answer
from tests.unit.service.conftest import Running, quiet, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.settings import Settings
from walkgraph.store.session import Store

CASES = 400
"""Over HTTP; `check` alone judges thousands of others."""
USED_CASES = 60
MOST_SECONDS = 0.2
"""Seconds of CPU time on a shared processor; most requests take a hundredth of it."""
STRICT_SECONDS = 0.05
"""At the long scale, which has the machine to itself."""
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63 - 1, 1e308, -0.0, "", "\x00", "a" * 3000, "@in.x", "__class__", "import os", "'; DROP",
    "../../etc/passwd", "\u202e\U0001f600", [], {}, [[[[[]]]]], {"use": "llm"}, {"code": "print()"}, {"loop": "x"},
    {"fork": "main", "into": "main"}, ["@in.x", "@out.y"], {"": ""},
)  # fmt: skip


def mutated(document: Any, dice: random.Random) -> Any:
    """One to four places of a document changed, moved, doubled or removed."""
    copy = json.loads(json.dumps(document))
    for _ in range(dice.randint(1, 4)):
        places = list(containers(copy))
        if not places:
            break
        container = dice.choice(places)
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        if not keys:
            continue
        key = dice.choice(keys)
        match dice.randrange(6):
            case 0:
                # A copy: what is put in is a container that may be changed next, or put into itself.
                container[key] = json.loads(json.dumps(dice.choice(STRANGE)))
            case 1:
                container.pop(key)
            case 2:
                container[key] = json.loads(json.dumps(dice.choice(places)))
            case 3 if isinstance(container, dict):
                container[str(dice.choice(STRANGE))[:80]] = container.pop(key)
            case 4 if isinstance(container, list):
                container.extend(container[: dice.randint(1, 20)])
            case _ if isinstance(container[key], str):
                text = container[key]
                at = dice.randrange(len(text) + 1)
                container[key] = text[:at] + dice.choice((".", "@", "(", "9", " ", "*", "-")) + text[at:]
    return copy


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def containers(value: Any) -> Any:
    if isinstance(value, dict | list) and value:
        yield value
        for child in value.values() if isinstance(value, dict) else value:
            yield from containers(child)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    settings = Settings(home=home, studio=False)
    Store.open(settings.database).close()
    with quiet():
        async with serving(settings, FakeFleet()) as running:
            yield running


async def check(service: Running, document: Any, most: float) -> tuple[httpx.Response, float]:
    """The answer, and the processor time of both ends in this process."""
    ask = partial(service.http.post, "/api/v1/graphs/check", json=document)
    return await fastest_answer(ask, most, time.process_time)


@pytest.mark.safety("S2")
@pytest.mark.slow
async def test_mutated_graphs(service: Running, repository: Path, scale: Scale, figure: Figure) -> None:
    dice = random.Random(20261120)
    documents = [json.loads(path.read_text()) for path in sorted((repository / "graphs").glob("*.json"))]
    seconds: list[float] = []
    invalid = 0
    cases, most = scale(CASES, 50_000), scale(MOST_SECONDS, STRICT_SECONDS)
    resident = 0
    for number in range(cases):
        if number == cases // 5:
            resident = resident_bytes()
        document = mutated(dice.choice(documents), dice)
        answer, took = await check(service, document, most)
        seconds.append(took)
        assert answer.status_code in (200, 400, 413, 422), (number, answer.text, document)
        invalid += answer.status_code == 200 and not answer.json()["ok"]
        if number % 10 == 0 and isinstance(document, dict):
            saved = await service.http.put("/api/v1/graphs/fuzzed", json=document, headers={"If-Match": "*"})
            assert saved.status_code in (200, 400), (number, saved.text)
            if saved.status_code == 200:
                assert (await service.http.get("/api/v1/graphs/fuzzed")).json() == document
    # Most mutants are wrong: a check that says yes to all of them would pass the rest.
    assert invalid > cases * 0.6
    ranked = sorted(seconds)
    figure("mutants", cases, at_least=50_000)
    figure("slowest", 1000 * ranked[-1], "ms", at_most=1000 * STRICT_SECONDS)
    figure("p99", 1000 * ranked[int(0.99 * cases)], "ms", at_most=1000 * STRICT_SECONDS)
    figure("memory grown", (resident_bytes() - resident) / 2**20, "MiB", at_most=64)
    assert statistics.median(seconds) < MOST_SECONDS / 8
    assert max(seconds) < MOST_SECONDS


@pytest.mark.safety("S2")
@pytest.mark.slow
async def test_mutated_graphs_and_requests_where_graphs_are_used(service: Running, repository: Path) -> None:
    """Whatever is simulated, written as Python, planned or switched to, and whatever else a request says."""
    await service.deploy()
    dice = random.Random(20261121)
    documents = [json.loads(path.read_text()) for path in sorted((repository / "graphs").glob("*.json"))]
    answered: dict[str, Counter[int]] = defaultdict(Counter)

    async def ask(method: str, path: str, body: Any) -> None:
        answer = await service.http.request(method, f"/api/v1{path}", json=body)
        answered[path][answer.status_code] += 1
        assert answer.status_code in (200, 202, 400, 404, 413, 422), (path, answer.text, body)

    for _ in range(USED_CASES):
        original = dice.choice(documents)
        task = dice.choice(list(original["tasks"]))
        counts = {name: 1 for name, found in original["tasks"][task].get("inputs", {}).items()}
        asked = {"task": task, "params": {}, "inputs": counts, "parts": []}
        document = mutated(original, dice)
        await ask("POST", "/graphs/simulate", {"graph": document, **asked})
        await ask("POST", "/graphs/simulate", {"graph": original, **mutated(asked, dice)})
        await ask("POST", "/graphs/python", {"graph": document})
        await ask("POST", "/plans", mutated({"graph": "shapes", "placement": None, "hardware": "2x80GB"}, dice))
        await ask("PUT", "/deployments/shapes", {"graph": document})
        await ask("PATCH", "/graphs/shapes", mutated({"tags": ["new", "kept"]}, dice))
    for path in ("/graphs/simulate", "/graphs/python", "/plans", "/graphs/shapes"):
        assert answered[path][200], path
        assert answered[path].total() > answered[path][200], path
    assert answered["/deployments/shapes"][202]
    assert (await service.http.get("/api/v1/gallery")).status_code == 200
