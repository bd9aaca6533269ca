"""The routes that bundled graphs serve, and the properties that decide them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.service.conftest import Running
from walkgraph.errors import NotFound
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.resources import bundled
from walkgraph.service.http.problems import Unavailable, Unprocessable
from walkgraph.service.openai import serving

CHAT, DRAW, EDIT, SPEAK, LIVE = serving.ROUTES


def document(name: str) -> dict[str, Any]:
    return json.loads(bundled("graphs")[name].read_text())


def graph(name: str) -> Graph:
    return codec.load(document(name))


ANSWERING = {CHAT: ["image_to_text"], DRAW: ["text_to_image"], EDIT: ["edit"], LIVE: ["image_to_text"]}
SERVED: dict[str, dict[str, list[str]]] = {
    "bagel": ANSWERING,
    "shapes": {**ANSWERING, CHAT: ["image_to_text", "chat"], LIVE: ["image_to_text", "chat"]},
    "llm": {CHAT: ["chat", "complete"], LIVE: ["chat", "complete"]},
    "orpheus": {SPEAK: ["speak"], LIVE: ["speak"]},
    "voice": {SPEAK: ["say"], LIVE: ["say"]},
    "qwen3_omni": {CHAT: ["chat", "converse", "watch"], SPEAK: ["say"], LIVE: ["chat", "converse", "say"]},
}


@pytest.mark.parametrize("name", sorted(bundled("graphs")))
def test_bundled_graphs(name: str) -> None:
    assert serving.routes(graph(name)) == SERVED.get(name, {})


@pytest.mark.parametrize(
    ("name", "task", "begun"),
    [
        ("orpheus", "speak", {("decode", "tokens")}),
        ("llm", "complete", {("decode", "tokens")}),
        # The frames of speech begin with what stands for no frame.
        ("qwen3_omni", "converse", {("decode", "answer")}),
        ("qwen3_omni", "say", set()),
        ("bagel", "text_to_image", set()),
    ],
)
def test_loops_that_go_on_with_a_token_from_before_are_told(name: str, task: str, begun: set[tuple[str, str]]) -> None:
    assert serving.servings(graph(name))[task].begun == begun


def test_outputs_are_told_with_the_loops_that_they_leave() -> None:
    found = serving.servings(graph("bagel"))
    text = found["image_to_text"].output_of("text")
    assert text == serving.Output("text", "text", True, frozenset({("decode", "tokens")}))
    drawing = found["text_to_image"]
    assert (drawing.output_of("image") or text).name == "image"
    assert drawing.preview is not None
    assert drawing.preview.name == "preview"
    assert drawing.walked == {"text"}
    assert found["image_to_text"].walked == {"text", "image"}
    speaking = serving.servings(graph("orpheus"))["speak"]
    assert (speaking.voice, speaking.walked, speaking.inputs_of("text")) == ("voice", frozenset(), ("text",))
    assert speaking.preview is None


def test_derived_once_for_a_graph() -> None:
    found = graph("shapes")
    assert serving.servings(found) is serving.servings(found)
    assert serving.servings(found) is not serving.servings(graph("shapes"))


def changed(name: str, task: str, **changes: Any) -> list[str]:
    """The routes of a task that is declared a little differently."""
    found = document(name)
    found["tasks"][task] |= changes
    return list(serving.servings(codec.load(found))[task].routes)


def test_an_input_that_no_request_can_carry_closes_a_route() -> None:
    inputs = document("bagel")["tasks"]["image_to_text"]["inputs"]
    state = {"state": {"modality": "state", "optional": False}}
    assert changed("bagel", "image_to_text", inputs={**inputs, **state}) == []
    state["state"]["optional"] = True
    assert changed("bagel", "image_to_text", inputs={**inputs, **state}) == [CHAT, LIVE]


def test_the_first_output_decides() -> None:
    assert changed("bagel", "text_to_image", outputs=["text", "image", "preview"]) == [CHAT, LIVE]
    assert changed("bagel", "text_to_image", outputs=["preview", "image"]) == [DRAW]


async def test_models_are_resolved(service: Running) -> None:
    await service.deploy()
    find = lambda model, route: serving.resolve(service.services.deployments, model, route)  # noqa: E731
    assert find("shapes", CHAT).serving.name == "image_to_text"
    assert find("shapes/edit", EDIT).model == "shapes/edit"
    for model in ("nope", "shapes/nope", "", "/", "shapes/"):
        with pytest.raises(NotFound) as missing:
            find(model, CHAT)
        assert missing.value.pointer == "/model"
    for model in ("shapes", "shapes/edit"):
        with pytest.raises(Unprocessable) as other:
            find(model, SPEAK)
        assert other.value.faults[0].code == "unsupported_route"
        assert "images.edits" in str(other.value)


async def test_a_deployment_that_is_not_known_yet_is_not_refused_for_good(service: Running) -> None:
    await service.deploy()
    managed = service.services.deployments.get("shapes")
    managed.serving.graph = None
    with pytest.raises(Unavailable):
        serving.resolve(service.services.deployments, "shapes", CHAT)
    answer = await service.http.get("/v1/models")
    assert answer.json()["data"][0]["routes"] == {}


async def test_earlier_answers_lead_to_a_task_that_takes_them(service: Running) -> None:
    await service.deploy()
    deployments = service.services.deployments
    assert serving.resolve(deployments, "shapes", CHAT).serving.name == "image_to_text"
    assert serving.resolve(deployments, "shapes", CHAT, history=True).serving.name == "chat"
    named = serving.resolve(deployments, "shapes/image_to_text", CHAT, history=True)
    assert named.serving.name == "image_to_text"
