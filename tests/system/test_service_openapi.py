"""Requests made from the published OpenAPI document: nothing is answered by an untyped error."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.unit.service.conftest import BASE, Running, quiet, serving
from tests.unit.service.fakes import FakeFleet
from walkgraph.service.dialects import dialect_of
from walkgraph.settings import Settings
from walkgraph.store.session import Store

EXAMPLES = 15
"""Of each operation."""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Running]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    found = Settings(home=home, studio=False)
    Store.open(found.database).close()
    with quiet():
        async with serving(found, FakeFleet()) as running:
            await running.deploy()
            yield running


def cases(strategy: Any) -> list[Any]:
    found: list[Any] = []

    @given(strategy)
    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found


def _text(value: Any) -> str | bytes:
    return value if isinstance(value, str | bytes) else str(value)


def typed(answer: httpx.Response) -> bool:
    """Whether an error is written as its path's clients read it."""
    match dialect_of(answer.request.url.path):
        case "openai":
            kind, told = "application/json", answer.json()["error"].keys() == {"message", "type", "param", "code"}
        case "kserve":
            kind, told = "application/json", isinstance(answer.json()["error"], str)
        case "native":
            kind, told = "application/problem+json", answer.json()["type"].startswith("urn:walkgraph:problem:")
    return told and answer.headers["content-type"] == kind


@pytest.mark.slow
async def test_no_request_is_answered_by_an_untyped_error(service: Running) -> None:
    answered: Counter[int] = Counter()
    schema = schemathesis.openapi.from_dict(service.app.openapi())
    for operation in schema.get_all_operations():
        for case in cases(operation.ok().as_strategy()):
            request = case.as_transport_kwargs(base_url=BASE)
            request.pop("cookies", None)
            if "data" in request:
                request["content"] = request.pop("data")
            if request.get("files"):
                # A form's fields are texts.
                request["files"] = [(name, (file, _text(value))) for name, (file, value) in request["files"]]
            request["headers"] = {
                k: v for k, v in request["headers"].items() if k.lower() in ("content-type", "if-match")
            }
            answer = await service.http.request(**request)
            answered[answer.status_code] += 1
            assert answer.status_code < 500 or answer.status_code == 503, (request, answer.text)
            if answer.status_code >= 400 and "/health" not in request["url"]:
                assert typed(answer), (request, answer.text)
    assert answered[200] > 50
    assert answered.total() > 250
