"""Requests that go past the framework's routing are answered as those that don't."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from walkgraph.service.http import limits
from walkgraph.service.runs import shortcut

TASK = "/v1/tasks/shapes/text_to_image"
PROMPT = {"inputs": {"prompt": "a red circle"}}
CASES: list[tuple[str, dict[str, Any]]] = [
    (TASK, {"json": PROMPT}),
    (TASK, {"json": {**PROMPT, "params": {"seed": 14}}}),
    (TASK, {"json": {**PROMPT, "stream": True}}),
    (TASK, {"json": PROMPT, "headers": {"accept": "image/png"}}),
    (TASK, {"json": PROMPT, "headers": {"accept": "font/woff"}}),
    (TASK, {"json": {}}),
    (TASK, {"json": {"inputs": {"prompt": 1}, "nonsense": 2}}),
    (TASK, {"json": [1]}),
    (TASK, {"content": b"{", "headers": {"content-type": "application/json"}}),
    (TASK, {"content": b"", "headers": {"content-type": "application/json"}}),
    (TASK, {"content": b'{"a": 1}' + b" " * limits.BODY_BYTES, "headers": {"content-type": "application/json"}}),
    (TASK, {"files": {"prompt": ("", b"a red circle")}}),
    (TASK, {"data": {"prompt": "a"}}),
    ("/v1/tasks/nobody/text_to_image", {"json": PROMPT}),
    ("/v1/tasks/shapes/nothing", {"json": PROMPT}),
    ("/v1/tasks/shapes/9", {"json": PROMPT}),
    ("/v1/tasks/shapes/text_to_image/", {"json": PROMPT}),
    (f"/v1/tasks/shapes/{'a' * 65}", {"json": PROMPT}),
]


@pytest.mark.parametrize(("path", "request_"), CASES, ids=range(len(CASES)))
async def test_both_ways_answer_alike(
    service: Running, monkeypatch: pytest.MonkeyPatch, path: str, request_: dict[str, Any]
) -> None:
    await service.deploy()
    short = await service.http.post(path, **request_)
    monkeypatch.setattr(shortcut, "_PATH", re.compile("nothing"))
    long = await service.http.post(path, **request_)
    assert _told(short) == _told(long)


def _told(answer: Any) -> tuple[int, dict[str, str], str]:
    """Without what is new each time."""
    named = {"x-request-id", "traceparent", "content-length"}
    headers = {name: value for name, value in answer.headers.items() if name not in named}
    return answer.status_code, headers, re.sub(r"[0-9a-f]{32}", "RUN", answer.text)


async def test_the_way_is_taken(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    await service.deploy()
    monkeypatch.setattr(service.app.router, "routes", [])
    assert (await service.http.post(TASK, json=PROMPT)).status_code == 200
