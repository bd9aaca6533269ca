"""Agents whose tools are tasks of the starter, with real processes: the model is a script, or a server outside."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.recording import Asked, Recording, Write, answered
from tests.support.serving import Service
from walkgraph.client import Client

ASKED = [{"role": "user", "content": "Draw a red circle."}]
CALLS = [("draw", {"caption": "a red circle on white"}), ("look", {})]


@pytest.fixture(scope="module")
def agent(repository: Path) -> dict[str, Any]:
    return json.loads((repository / "graphs" / "examples" / "agent.json").read_text())


@pytest.fixture(scope="module")
def server(elsewhere: Recording) -> Recording:
    """A model that calls both tools, then says what the last one said."""

    async def chat(asked: Asked, write: Write) -> None:
        turns = asked.json["messages"]
        said = sum(turn["role"] == "assistant" for turn in turns)
        message: dict[str, Any] = {"content": f"It shows {turns[-1]['content']}"}
        if said < len(CALLS):
            name, arguments = CALLS[said]
            function = {"name": name, "arguments": json.dumps(arguments)}
            message = {"content": None, "tool_calls": [{"id": "x", "type": "function", "function": function}]}
        await write(answered({"choices": [{"message": message, "finish_reason": "stop"}]}))

    elsewhere.answers["/v1/chat/completions"] = chat
    return elsewhere


@pytest.fixture(scope="module")
def running(outward: Service, agent: dict[str, Any], server: Recording) -> Iterator[Service]:
    graphs = (agent, with_a_model(agent, server), with_a_person(agent), with_a_memory())
    names = [graph["name"] for graph in graphs]
    with outward.client() as client:
        for graph in graphs:
            client.deploy(graph, name=graph["name"])
    for name in names:
        outward.wait_ready(name)
    yield outward
    outward.take_back(*names)


def with_a_model(agent: dict[str, Any], server: Recording) -> dict[str, Any]:
    """The same, with a model on another server."""
    made = copy.deepcopy(agent) | {"name": "modelled"}
    made["nodes"]["model"] = {
        "component": "openai.chat",
        "params": {"base_url": f"{server.origin}/v1", "model": "small"},
    }
    return made


def with_a_person(agent: dict[str, Any]) -> dict[str, Any]:
    """The same, with a person who is asked before a picture is drawn."""
    made = copy.deepcopy(agent) | {"name": "asking"}
    loop = next(step for step in made["tasks"]["ask"]["steps"] if "loop" in step)["loop"]
    choice = next(step for step in loop if "choose" in step)
    choice["cases"]["draw"].insert(0, {"approve": ["think.arguments"], "label": "Draw this?"})
    return made


def with_a_memory() -> dict[str, Any]:
    """An agent without tools that remembers its session."""
    return {
        "format": "walkgraph/graph@1",
        "name": "remembering",
        "states": {"memory": {"kind": "tensor", "scope": "session"}},
        "nodes": {
            "recall": {"component": "agent.recall", "states": {"memory": "memory"}},
            "model": {"component": "agent.script", "params": {"lines": "Hello.\nAgain: {last}"}},
            "read": {"component": "agent.read_calls"},
            "remember": {"component": "agent.remember", "states": {"memory": "memory"}},
        },
        "walks": {
            "talk": {
                "inputs": {"messages": "messages"},
                "body": ["recall", "model", "read", "remember"],
                "edges": [
                    ["@in.messages", "recall.messages"],
                    ["recall.messages", "model.messages"],
                    ["recall.messages", "read.messages"],
                    ["model.text", "read.text"],
                    ["read.messages", "remember.messages"],
                    ["read.text", "@out.text"],
                    ["remember.turns", "@out.turns"],
                ],
            }
        },
        "tasks": {
            "talk": {
                "inputs": {"messages": {"modality": "messages"}},
                "outputs": ["text", "turns"],
                "session": {},
                "steps": [{"walk": "talk", "with": {"messages": "@task.messages"}}],
            }
        },
    }


def asked(client: Client, graph: str, **params: Any) -> dict[str, Any]:
    return client.run(graph, "ask", {"inputs": {"messages": ASKED}, "params": {"seed": 3, **params}})


def texts(found: dict[str, Any]) -> list[str]:
    return [one["text"] for one in found["outputs"]["text"]]


def described(client: Client, picture: dict[str, Any]) -> str:
    """The starter's description of a picture, as the tool gives it."""
    request = {"inputs": {"image": picture["data"]}}
    return "".join(one["text"] for one in client.run("shapes", "image_to_text", request)["outputs"]["text"])


def test_an_agent_calls_its_tools_until_it_has_an_answer(running: Service) -> None:
    with running.client() as client:
        found = asked(client, "agent")
        (picture,) = found["outputs"]["image"]
        assert texts(found)[-1] == f"I have drawn it: {described(client, picture)}"
        assert len(texts(found)) == 4, "a wrong call, two calls, the answer"
        assert found["usage"]["loops"] == [{"walk": "", "loop": "turns", "iterations": 4, "reason": "stop"}]
        called = client.trace(found["run"])["called"]
        assert [(one["use"], one["task"]) for one in called] == [
            ("draw", "shapes/text_to_image"),
            ("look", "shapes/image_to_text"),
        ]


def test_an_agent_ends_after_its_turns(running: Service) -> None:
    with running.client() as client:
        found = asked(client, "agent", turns=2)
        assert len(texts(found)) == 2
        assert len(found["outputs"]["image"]) == 1
        assert found["usage"]["loops"] == [{"walk": "", "loop": "turns", "iterations": 2, "reason": "bound"}]
        ends = client.trace(found["run"])["ends"]
        assert [(one["loop"], one["reason"]) for one in ends] == [("turns", "bound")]


@pytest.mark.parametrize(("turns", "finish", "reason"), [(2, "length", "bound"), (8, "stop", "stop")])
def test_openai_s_answer_tells_whether_the_turns_ran_out(
    running: Service, turns: int, finish: str, reason: str
) -> None:
    token = {"Authorization": f"Bearer {running.token}"}
    with httpx.Client(base_url=running.told["url"], headers=token, timeout=300, trust_env=False) as http:
        body = {"model": "agent/ask", "messages": ASKED, "turns": turns}
        choice = http.post("/v1/chat/completions", json=body).json()["choices"][0]
        assert (choice["finish_reason"], choice["finish_reasons"]) == (finish, {"text": reason})


def test_the_model_can_be_on_another_server(running: Service, server: Recording) -> None:
    with running.client() as client:
        found = asked(client, "modelled")
        (picture,) = found["outputs"]["image"]
        said = described(client, picture)
        assert texts(found)[-1] == f"It shows {said}"
        last = server.asked[-1].json
        assert [tool["function"]["name"] for tool in last["tools"]] == ["draw", "look"]
        assert [turn["role"] for turn in last["messages"]] == [
            "system", "user", "assistant", "tool", "assistant", "tool",
        ]  # fmt: skip
        drawn, looked = last["messages"][3], last["messages"][5]
        assert drawn["content"][0]["image_url"]["url"] == f"data:image/png;base64,{picture['data']}"
        assert (looked["content"], looked["tool_call_id"]) == (said, "call_1")
        assert last["messages"][2]["tool_calls"][0]["id"] == drawn["tool_call_id"] == "call_0"


def test_a_person_can_be_asked_before_a_tool_is_called(running: Service) -> None:
    with running.client() as client:
        run = client.start_run("asking", "ask", {"inputs": {"messages": ASKED}, "params": {"seed": 3}})["id"]
        while (state := client.get_run(run)["state"]) != "waiting":
            assert state == "running"
        assert json.loads(client.approval(run)["values"]["think.arguments"]["text"]) == CALLS[0][1]
        client.approve(run)
        while (state := client.get_run(run)["state"]) in ("waiting", "running"):
            pass
        assert state == "done"
        assert len(client.result(run)["outputs"]["image"]) == 1


def test_a_conversation_is_remembered_in_its_session(running: Service) -> None:
    with running.client() as client:

        def talk(text: str, session: str) -> tuple[str, int]:
            request = {"inputs": {"messages": [{"role": "user", "content": text}]}, "session": session}
            outputs = client.run("remembering", "talk", request)["outputs"]
            return outputs["text"][-1]["text"], outputs["turns"][-1]["value"]

        assert talk("one", "a") == ("Hello.", 2)
        assert talk("two", "a") == ("Again: two", 4)
        assert talk("one", "b") == ("Hello.", 2)
        assert talk("three", "a") == ("Again: three", 6)
