"""Around the calls, by the official client: headers, keys, limits, sending again, many at once, and the models."""

from __future__ import annotations

import asyncio
import base64
import io
from typing import Any

import httpx
import openai
import pytest
from PIL import Image

from tests.support.serving import Service

HELLO = [{"role": "user", "content": "hello"}]
DRAWN = {"temperature": 1.0, "seed": 3}


def picture() -> list[dict[str, Any]]:
    """A message with one picture."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), "white").save(buffer, "PNG")
    url = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


def said(answer: Any) -> str:
    return answer.choices[0].message.content


def test_headers(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="bagel", messages=HELLO, max_tokens=2)
    answer = raw.parse()
    assert raw.status_code == 200
    assert answer.id == f"chatcmpl-{raw.headers['x-request-id']}"
    assert answer._request_id == raw.headers["x-request-id"]
    own = {"X-Request-Id": "mine-1"}
    raw = client.chat.completions.with_raw_response.create(
        model="bagel", messages=HELLO, max_tokens=2, extra_headers=own
    )
    assert raw.headers["x-request-id"] == "mine-1"


def test_a_request_sent_again_is_the_same(client: openai.OpenAI) -> None:
    key = {"Idempotency-Key": "chat-1"}
    call: dict[str, Any] = {"model": "bagel", "messages": HELLO, "max_tokens": 6, "temperature": 1.0, "n": 2}
    first = client.chat.completions.create(**call, extra_headers=key)
    again = client.chat.completions.create(**call, extra_headers=key)
    assert again == first
    other = client.chat.completions.create(**call)
    assert other.id != first.id
    for change in ({"max_tokens": 5}, {"stop": "x"}):
        with pytest.raises(openai.BadRequestError) as found:
            client.chat.completions.create(**{**call, **change}, extra_headers=key)
        assert found.value.code == "idempotency_conflict"


def test_a_stopped_request_sent_again_is_the_same(client: openai.OpenAI) -> None:
    call: dict[str, Any] = {"model": "shapes", "messages": picture(), "stop": " ", "max_tokens": 200}
    found = {client.chat.completions.create(**call, extra_headers={"Idempotency-Key": "chat-2"}).id for _ in range(2)}
    assert len(found) == 1


def test_a_foreign_key_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.AuthenticationError) as found:
        client.with_options(api_key="sk-foreign").chat.completions.create(model="bagel", messages=HELLO)
    assert found.value.type == "authentication_error"
    assert "valid key" in found.value.message


def key(running: Service, **fields: Any) -> str:
    headers = {"Authorization": f"Bearer {running.token}"}
    made = httpx.post(f"{running.told['url']}/api/v1/keys", json=fields, headers=headers, trust_env=False)
    assert made.status_code == 201, made.text
    return made.json()["secret"]


def test_a_key_that_asks_too_often(running: Service, client: openai.OpenAI) -> None:
    slow = client.with_options(api_key=key(running, name="slow", scopes=["infer"], requests_per_minute=1))
    call: dict[str, Any] = {"model": "bagel", "messages": HELLO, "max_tokens": 1}
    slow.chat.completions.create(**call)
    with pytest.raises(openai.RateLimitError) as found:
        slow.chat.completions.create(**call)
    assert found.value.type == "rate_limit_error"
    assert 0 < int(found.value.response.headers["retry-after"]) <= 60
    assert "x-should-retry" not in found.value.response.headers


def test_a_key_without_the_scope(running: Service, client: openai.OpenAI) -> None:
    reader = client.with_options(api_key=key(running, name="reader", scopes=["read"]))
    assert {model.id for model in reader.models.list()} >= set(MODELS)
    with pytest.raises(openai.PermissionDeniedError) as found:
        reader.chat.completions.create(model="bagel", messages=HELLO)
    assert found.value.type == "permission_error"


def test_keys_for_retries_are_each_callers_own(running: Service, client: openai.OpenAI) -> None:
    other = client.with_options(api_key=key(running, name="other", scopes=["infer"]))
    call: dict[str, Any] = {"model": "bagel", "messages": HELLO, "max_tokens": 2}
    mine, theirs = (
        who.chat.completions.create(**call, extra_headers={"Idempotency-Key": "chat-3"}) for who in (client, other)
    )
    assert mine.id != theirs.id


def test_a_client_waits_for_a_deployment_that_starts(running: Service, client: openai.OpenAI) -> None:
    with running.client() as native:
        native.deploy("shapes", "shapes_one_cpu", "late")
        try:
            call: dict[str, Any] = {"model": "late", "messages": picture(), "max_tokens": 2}
            with pytest.raises(openai.InternalServerError) as found:
                client.chat.completions.create(**call)
            assert found.value.status_code == 503
            assert found.value.response.headers["retry-after"] == "1"
            raw = client.with_options(max_retries=600).chat.completions.with_raw_response.create(**call)
            assert raw.retries_taken > 0
            assert raw.parse().choices
        finally:
            native.undeploy("late", 0.0)


async def test_many_at_once(aio: openai.AsyncOpenAI) -> None:
    calls = [aio.chat.completions.create(model="bagel", messages=HELLO, max_tokens=5, **DRAWN) for _ in range(6)]
    answers = await asyncio.gather(*calls)
    assert len({said(answer) for answer in answers}) == 1
    assert len({answer.id for answer in answers}) == 6
    stream = await aio.chat.completions.create(model="bagel", messages=HELLO, max_tokens=5, stream=True, **DRAWN)
    pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
    assert "".join(pieces) == said(answers[0])


# ── models ──────────────────────────────────────────────────────────────────────────────────────

MODELS = {
    "shapes": {"chat.completions", "images.generations", "images.edits", "realtime"},
    "bagel": {"chat.completions", "images.generations", "images.edits", "realtime"},
    "llm": {"chat.completions", "realtime"},
    "orpheus": {"audio.speech", "realtime"},
    "reach": set[str](),
}


def routes(model: Any) -> dict[str, list[str]]:
    return model.model_extra["routes"]


def test_models_are_listed(client: openai.OpenAI) -> None:
    found = {model.id: model for model in client.models.list()}
    # Other tests of this service deploy more.
    assert {name: set(routes(found[name])) for name in MODELS} == MODELS
    assert {(model.object, model.owned_by) for model in found.values()} == {("model", "walkgraph")}


@pytest.mark.parametrize("name", [*MODELS, "bagel/edit", "orpheus/speak", "reach/act"])
def test_a_model_is_shown(client: openai.OpenAI, name: str) -> None:
    found = client.models.retrieve(name)
    assert found.id == name
    id_, _, task = name.partition("/")
    assert set(routes(found)) <= MODELS[id_]
    if task:
        assert all(tasks == [task] for tasks in routes(found).values())


@pytest.mark.parametrize("name", ["nope", "bagel/nope", "bagel/", "/bagel", "bagel/edit/x"])
def test_a_model_that_is_not_there(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.NotFoundError) as found:
        client.models.retrieve(name)
    assert found.value.code == "model_not_found"
    assert found.value.param == "model"


def test_a_path_that_is_not_there(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as found:
        client.embeddings.create(model="bagel", input="x")
    assert found.value.type == "invalid_request_error"
