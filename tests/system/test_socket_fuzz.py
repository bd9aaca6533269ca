"""Mutated messages on every WebSocket: each is answered in words or ends its socket with a code; nothing else ends, and
nothing that they began goes on."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.storm.fleet import AbleDeployment, AbleFleet
from tests.support.storm.known import PICTURE, TASKS, Known, settle
from tests.support.storm.talk import LAST, Talk, talk
from tests.system.test_service_fuzz import mutated
from tests.unit.service.conftest import Running, quiet, serving
from tests.unit.service.fakes import PNG
from walkgraph.settings import Settings
from walkgraph.store.session import Store

SOCKETS = 400
"""Number of sockets of tasks; each takes one request."""
TURNS = 50
"""Sockets that take many messages, of each kind."""
MESSAGES = 25
"""On one of them."""
STRANGE: tuple[str | bytes, ...] = (
    "", "{", "[]", "null", "[" * 100_000, "1" * 5000, '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"": 0}',
    '{"a": 1, "a": 2}', '"' + "x" * 70_000 + '"', '{"frames": 1}', '{"frames": -1}', '{"frames": 99}', b"", b"\x00" * 9,
    '{"cancel": true}', "\ufeff{}", '{"id": {}}', '{"type": []}',
)  # fmt: skip
FRAMED = {"frames": 1, "inputs": {"image": {"type": "image", "frame": 0}}}
OBSERVED: dict[str, Any] = {"id": "a", "inputs": {"camera": PICTURE, "instruction": "reach", "state": [0.4, -0.8]}}
SOUND = base64.b64encode(bytes(480)).decode()
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "session.update", "session": {"instructions": "Be brief.", "max_output_tokens": 9, "temperature": 0.5}},
    {"type": "session.update", "session": {"audio": {"output": {"voice": "tara"}, "input": {"turn_detection": None}}}},
    {"type": "conversation.item.create", "item": {"id": "one", "type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "Hello"}]}},
    {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [
        {"type": "input_image", "image_url": PICTURE}]}},
    {"type": "conversation.item.create", "previous_item_id": "one", "item": {"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello"}]}},
    {"type": "conversation.item.retrieve", "item_id": "one"},
    {"type": "conversation.item.delete", "item_id": "one"},
    {"type": "input_audio_buffer.append", "audio": SOUND},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "response.create"},
    {"type": "response.create", "response": {"conversation": "none", "metadata": {"a": "b"}, "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]}},
    {"type": "response.cancel"},
)  # fmt: skip


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[tuple[Running, Known]]:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    found = Settings(home=home, studio=False)
    Store.open(found.database).close()
    with quiet():
        async with serving(found, AbleFleet()) as running:
            yield running, await settle(running, random.Random(1))


def spoiled(right: Any, dice: random.Random) -> str | bytes:
    """As it is, mutated, or something else."""
    match dice.randrange(8):
        case 0:
            return dice.choice(STRANGE)
        case 1 | 2 | 3:
            return json.dumps(right)
        case _:
            return json.dumps(mutated(right, dice))


def form(dice: random.Random) -> str:
    return dice.choice(("", "frames=json", "frames=binary", "frames=binary", "frames=other"))


def under_way(running: Running) -> set[str]:
    return {run for deployment in cast(list[AbleDeployment], running.fleet.started) for run in deployment.held}


async def unmoved(running: Running, runs: set[str], tasks: int) -> None:
    """All that sockets began has ended with them."""
    for _ in range(200):
        if len(asyncio.all_tasks()) <= tasks and under_way(running) == runs:
            return
        await asyncio.sleep(0)
    raise AssertionError((under_way(running) - runs, asyncio.all_tasks()))


def counted(found: Talk) -> str:
    return f"refused {found.status}" if found.status else f"closed {found.code}"


@pytest.mark.slow
async def test_requests_on_sockets_of_tasks(service: tuple[Running, Known]) -> None:
    running, _ = service
    dice = random.Random(20261122)
    ended: Counter[str] = Counter()
    events: Counter[str] = Counter()
    before = under_way(running), len(asyncio.all_tasks())
    for _ in range(SOCKETS):
        deployment, task, body = dice.choice(TASKS)
        frames: list[bytes] = []
        if task == "image_to_text" and dice.random() < 0.7:
            body, frames = (
                FRAMED,
                [dice.choice((PNG, PNG, b"", b"\x89PNG", bytes(1000)))] * dice.choice((1, 1, 1, 0, 2)),
            )
        path = f"/ws/v1/tasks/{deployment}/{dice.choice((task, task, task, 'none'))}?{form(dice)}"
        found = await talk(running.app, path, [spoiled(body, dice), *frames], {"cancel": True})
        ended[counted(found)] += 1
        events.update(message["event"] for message in found.messages)
        assert found.status or found.code, path
    await unmoved(running, *before)
    assert events["done"] > SOCKETS / 10, events
    assert events["error"] > SOCKETS / 10, events
    assert {"closed 1000", "closed 1007", "closed 1008"} <= ended.keys(), ended


@pytest.mark.slow
async def test_messages_of_a_session(service: tuple[Running, Known]) -> None:
    running, _ = service
    dice = random.Random(20261123)
    events: Counter[str] = Counter()
    before = under_way(running), len(asyncio.all_tasks())
    for _ in range(TURNS):
        path = f"/ws/v1/sessions/reach/act?session={dice.choice('abc')}&{form(dice)}"
        sent = [spoiled(OBSERVED, dice) for _ in range(MESSAGES)]
        found = await talk(running.app, path, sent, {"id": LAST, "params": None})
        events.update(message["event"] for message in found.messages)
    await unmoved(running, *before)
    assert events["done"] > TURNS, events
    assert events["error"] > TURNS, events


@pytest.mark.slow
async def test_events_of_a_realtime_conversation(service: tuple[Running, Known]) -> None:
    running, _ = service
    dice = random.Random(20261124)
    events: Counter[str] = Counter()
    before = under_way(running), len(asyncio.all_tasks())
    for _ in range(TURNS):
        path = f"/v1/realtime?model={dice.choice(('shapes', 'orpheus', 'orpheus'))}"
        sent = [spoiled(dice.choice(EVENTS), dice) for _ in range(MESSAGES)]
        found = await talk(running.app, path, sent, {"type": "nothing", "event_id": LAST})
        assert found.code is None, "a fault leaves the socket open"
        events.update(message["type"] for message in found.messages)
    await unmoved(running, *before)
    assert events["error"] > TURNS, events
    for kind in ("session.updated", "conversation.item.added", "response.created", "input_audio_buffer.cleared"):
        assert events[kind] > TURNS / 6, events


@pytest.mark.slow
async def test_words_to_those_who_only_tell(service: tuple[Running, Known]) -> None:
    """Followers of runs and of telemetry: what they say changes nothing."""
    running, known = service
    dice = random.Random(20261125)
    before = under_way(running), len(asyncio.all_tasks())
    ended: Counter[str] = Counter()
    for run in (*known.runs, "0" * 32, "x"):
        for _ in range(4):
            sent = [spoiled({"cancel": False}, dice) for _ in range(dice.randrange(3))]
            found = await talk(running.app, f"/ws/v1/runs/{run}?{form(dice)}", sent, {"x": 1})
            ended[counted(found)] += 1
    for deployment in ("shapes", "none", "x" * 65):
        found = await talk(running.app, f"/ws/v1/telemetry?deployment={deployment}", STRANGE[:4], {"x": 1})
        ended[counted(found)] += 1
    await unmoved(running, *before)
    assert ended["closed 1000"], ended
