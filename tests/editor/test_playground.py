"""The playground against a client that answers from memory."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

import walkgraph_editor
from walkgraph.client import Event, ProblemError, Unreachable
from walkgraph_editor import session

APP = Path(walkgraph_editor.__file__).with_name("app.py")
# The page alone: the test harness loses presses of buttons under `st.navigation`.
PAGE = "from walkgraph_editor.pages import playground\nplayground.page()\n"
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc00000030101"
        "00c9fe92ef0000000049454e44ae426082"
    )
).decode()
STEPS = {"type": "integer", "default": 20, "min": 2, "max": 200, "choices": [], "description": "How many."}
TASK = {
    "name": "draw",
    "label": "Draw a caption",
    "inputs": {"prompt": {"modality": "text", "many": True, "optional": False, "description": "As: `a red circle`."}},
    "params": {"steps": STEPS, "shift": {**STEPS, "type": "number", "default": 3.0, "min": 0.1, "max": 20}},
    "outputs": ["image"],
}
GRAPH = {
    "name": "<img src=x onerror=alert(1)>",
    "nodes": {'a"]; evil [label="': {"component": "x.y"}, "b": {"component": "x.z"}},
    "walks": {"w": {"label": "Walk one", "body": ["b"], "edges": [["@in.text", "b.text"], ["b.image", "@out.image"]]}},
}
TIMES = [{"node": "b", "rank": 0, "calls": 2, "busy": 0.02, "queued": 0.001}]


class FakeClient:
    url = "http://127.0.0.1:8421"

    def __init__(self, state: str = "ready", events: tuple[Event, ...] = ()) -> None:
        self.state = state
        self.events = events
        self.asked: list[dict[str, Any]] = []

    def deployments(self) -> list[dict[str, Any]]:
        ranks = [{"rank": 0, "device": "cpu", "state": self.state, "phase": "load", "fraction": 0.5}]
        found = {"id": "shapes", "graph": "shapes", "state": self.state, "reason": None, "ranks": ranks}
        return [{**found, "tasks": ["draw"]}]

    def deployment(self, _id: str) -> dict[str, Any]:
        return self.deployments()[0]

    def tasks(self, _id: str) -> list[dict[str, Any]]:
        return [TASK]

    def deployed_graph(self, _id: str) -> dict[str, Any]:
        return GRAPH

    def stream(self, _deployment: str, _task: str, request: dict[str, Any]) -> Iterator[Event]:
        self.asked.append(request)
        yield from self.events


DONE = (
    Event("accepted", {"run": "r", "seed": 7}),
    Event("output", {"name": "image", "index": 0, "iteration": [],
                     "value": {"type": "image", "mime": "image/png", "data": PNG}}),
    Event("output", {"name": "text", "index": 0, "iteration": [], "value": {"type": "text", "text": "a <b>red"}}),
    Event("output", {"name": "text", "index": 1, "iteration": [], "value": {"type": "text", "text": " circle"}}),
    Event("done", {"run": "r", "seconds": 0.5, "queued": 0.0, "times": TIMES}),
)  # fmt: skip
FAILED = (
    Event("accepted", {"run": "r", "seed": 7}),
    Event("error", {"run": "r", "seconds": 0.1, "queued": 0.0, "times": [],
                    "error": {"code": "numeric_error", "message": "not finite", "node": "b"}}),
)  # fmt: skip


@pytest.fixture
def studio(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], AppTest]:
    def open_with(client: Any) -> AppTest:
        monkeypatch.setattr(session, "client", client if callable(client) else lambda: client)
        app = AppTest.from_string(PAGE, default_timeout=20).run()
        assert not app.exception
        return app

    return open_with


def press_run(app: AppTest) -> AppTest:
    found = next(button for button in app.button if button.label == "Run")
    app = found.click().run()
    assert not app.exception
    return app


def test_a_run_shows_its_picture_text_and_times(studio: Callable[[Any], AppTest]) -> None:
    client = FakeClient(events=DONE)
    app = press_run(studio(client))
    assert client.asked == [{"inputs": {"prompt": "a red circle"}, "params": {"steps": 20, "shift": 3.0}}]
    assert app.status[0].label == "Done in 0.50 s · seed 7"
    assert [area.value for area in app.text_area] == ["a red circle", "a <b>red circle"]
    assert app.dataframe[0].value["node"].tolist() == ["b"]
    again = app.run()
    assert again.status[0].label == "Done in 0.50 s · seed 7"
    assert len(client.asked) == 1


def test_parameters_and_seed_are_sent_as_set(studio: Callable[[Any], AppTest]) -> None:
    client = FakeClient(events=DONE)
    app = studio(client)
    app.slider(key="shapes.draw.param.steps").set_value(4)
    app.number_input(key="shapes.draw.seed").set_value(11)
    press_run(app)
    assert client.asked[0]["params"] == {"steps": 4, "shift": 3.0, "seed": 11}


def test_what_is_needed_is_asked_for_before_anything_is_sent(studio: Callable[[Any], AppTest]) -> None:
    client = FakeClient(events=DONE)
    app = studio(client)
    app.text_area(key="shapes.draw.in.prompt").set_value("")
    app = press_run(app)
    assert "`prompt` is needed" in app.warning[0].value
    assert client.asked == []


def test_a_failed_run_names_its_node(studio: Callable[[Any], AppTest]) -> None:
    app = press_run(studio(FakeClient(events=FAILED)))
    assert app.error[0].value == "not finite (node `b`)"
    assert app.status[0].state == "error"


def test_a_refused_request_shows_its_faults(studio: Callable[[Any], AppTest]) -> None:
    class Refusing(FakeClient):
        def stream(self, *_: Any) -> Iterator[Event]:
            fault = {"pointer": "/params/steps", "code": "bad_value", "message": "at least 2"}
            raise ProblemError(422, {"detail": "the request has faults", "errors": [fault]})

    app = press_run(studio(Refusing()))
    assert app.error[0].value == "the request has faults"
    assert any("/params/steps" in caption.value for caption in app.caption)


def test_a_starting_deployment_shows_its_progress(studio: Callable[[Any], AppTest]) -> None:
    app = studio(FakeClient(state="starting"))
    assert not [button for button in app.button if button.label == "Run"]


def test_without_a_service_it_says_what_to_do(studio: Callable[[Any], AppTest]) -> None:
    def none() -> None:
        raise Unreachable("no Walkgraph service is running; start one with `walkgraph up`")

    assert "walkgraph up" in studio(none).error[0].value


def test_the_application_opens_on_the_playground(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "client", FakeClient)
    app = AppTest.from_file(str(APP), default_timeout=20).run()
    assert not app.exception
    assert [button.label for button in app.button] == ["Run"]
