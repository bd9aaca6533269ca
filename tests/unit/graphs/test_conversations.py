"""The starter in conversation: turns are walked on the real networks, and a conversation reaches a template whole."""

import io
import json
from functools import cache
from typing import Any

from PIL import Image

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.graph.conversation import Conversation, Role, Turn, TurnPart
from walkgraph.worker.io.values import pack, unpack


def picture(colour: str) -> TurnPart:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(buffer, "PNG")
    return TurnPart("image", buffer.getvalue())


def said(role: Role, *parts: TurnPart | str) -> Turn:
    return Turn(role, tuple(TurnPart("text", part) if isinstance(part, str) else part for part in parts))


def shapes() -> dict[str, Any]:
    document = json.loads(GRAPHS["shapes"].read_text())
    document["weights"]["shapes"]["source"] = "random:bagel-tiny:0"
    document["nodes"]["noise"]["params"]["channels"] = 16
    return document


@cache
def deployment() -> LocalDeployment:
    document = shapes()
    document["nodes"]["prompt"] = {
        "component": "text.chat_prompt",
        "weights": "shapes",
        "params": {"template": "chatml"},
    }
    document["walks"]["read_chat"] = {
        "inputs": {"chat": "messages"},
        "body": ["prompt", "llm"],
        "edges": [["@in.chat", "prompt.messages"], ["prompt.ids", "llm.ids"], ["prompt.text", "@out.prompt"]],
    }
    chat = document["tasks"]["chat"]
    document["tasks"]["whole"] = {
        **chat,
        "outputs": ["prompt", "text"],
        "steps": [{"walk": "read_chat", "with": {"chat": "@task.messages"}}, {"walk": "decode"}],
    }
    assert check(document, catalogue()).problems == ()
    return LocalDeployment(codec.load(document), placement_of("shapes_one_cpu"), threads=1)


def answer(name: str, task: str, *turns: Turn) -> dict[str, list[Any]]:
    local = deployment()
    local.submit(name, task, {"max_tokens": 4, "temperature": 1.0}, {"messages": [Conversation(turns)]})
    local.run()
    assert name not in local.failed
    return dict(local.outputs[name])


def test_every_turn_counts() -> None:
    red, blue = picture("red"), picture("blue")
    first = answer("a", "chat", said("user", red, "what?"))
    again = answer("b", "chat", said("system", "left out"), said("user", red, "what?"))
    later = answer("c", "chat", said("user", red, "what?"), said("assistant", "red"), said("user", blue, "and this?"))
    assert first["text"] == again["text"]
    assert later["text"] != first["text"]


def test_a_whole_conversation_is_a_prompt() -> None:
    found = answer("w", "whole", said("system", "be kind"), said("user", "hi", "there"), said("assistant", "yes"))
    (prompt,) = found["prompt"]
    assert prompt == (
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhi\nthere<|im_end|>\n"
        "<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_part_that_the_template_cannot_write_fails_the_run() -> None:
    local = deployment()
    chat = Conversation((said("user", picture("red")),))
    local.submit("f", "whole", {"max_tokens": 4}, {"messages": [chat]}, record=True)
    local.run()
    assert local.failed["f"].code == "invalid_input"
    assert "no parts of type `image`" in local.failed["f"].message
    assert "`/0/content/0` of the conversation" in local.failed["f"].message


def test_tools_reach_the_template_by_the_wire() -> None:
    chat = Conversation((said("user", "hi"),), ('{"type":"function","function":{"name":"look"}}',))
    assert unpack(pack(chat)) == chat
    local = deployment()
    local.submit("t", "whole", {"max_tokens": 1}, {"messages": [chat]})
    local.run()
    (prompt,) = local.outputs["t"]["prompt"]
    assert '<tools>\n{"type": "function", "function": {"name": "look"}}\n</tools>' in prompt
