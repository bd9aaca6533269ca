"""One service for all tables of this folder, with the official client's address and key.

shapes         the starter: draws, edits, describes; its weights are trained
bagel          tiny, at random: texts and pictures in turn, thoughts, pictures of 32 pixels
orpheus        tiny, at random: reads aloud
llm            tiny, at random: answers in conversations
reach          acts on a robot's observations: no route of OpenAI's
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.serving import Service, service

GRAPHS = Path(__file__).resolve().parents[3] / "graphs"
SECONDS = 300.0
"""Limit of any one call."""
CIRCLES: dict[str, Any] = {"temperature": 0.0, "repetition_penalty": 1.0}
"""With these, Orpheus at random weights soon goes round in circles, so that it speaks until its bound. What it draws
may end at any token."""


def tiny(name: str, *, sources: dict[str, str], **bounds: dict[str, Any]) -> dict[str, Any]:
    """A bundled graph with small weights at random; `bounds`: what changes in a parameter, of every task that has
    it."""
    graph = json.loads((GRAPHS / f"{name}.json").read_text())
    for key, source in sources.items():
        graph["weights"][key]["source"] = source
    for task in graph["tasks"].values():
        for param, changes in bounds.items():
            if param in task["params"]:
                task["params"][param] |= changes
    return graph


def bagel() -> dict[str, Any]:
    """Pictures are small, and what is reserved of caches is little."""
    side = {"min": 0, "max": 64, "default": 32}
    graph = tiny(
        "bagel",
        sources={"bagel": "random:bagel-tiny:0"},
        width=side,
        height=side,
        steps={"default": 4},
        context={"default": 512},
        max_tokens={"default": 16},
    )
    graph["nodes"]["vae_picture"]["params"] = {"min_side": 16, "max_side": 128, "stride": 16}
    graph["nodes"]["vit_picture"]["params"] = {"min_side": 16, "max_side": 128, "stride": 8}
    graph["nodes"]["noise"]["params"]["channels"] = 16
    graph["nodes"]["preview"]["params"] = {"detail": 4}
    return graph


def orpheus() -> dict[str, Any]:
    return tiny(
        "orpheus",
        sources={"orpheus": "random:orpheus-tiny:0", "snac": "random:snac-tiny:0"},
        max_tokens={"default": 140},
        max_prompt={"default": 64},
    )


def qwen3_omni(**bounds: dict[str, Any]) -> dict[str, Any]:
    """Answers in words whatever it hears, and speaks until its bound. By itself, a model at random weights ends some
    answers at once, and which ones depends on the sound, or on how much was said before an interruption."""
    graph = tiny("qwen3_omni", sources={"omni": "random:qwen3-omni-tiny:0"}, **bounds)
    # The mark that would end an answer stands in every prompt, so it is penalised from the first token on.
    graph["nodes"]["thinker"]["params"]["repetition_penalty"] = 10
    graph["nodes"]["talker"]["params"]["min_frames"] = graph["tasks"]["chat"]["params"]["max_frames"]["max"]
    return graph


def llm() -> dict[str, Any]:
    return tiny("llm", sources={"llm": "random:qwen3-tiny:0"}, max_tokens={"default": 12}, max_prompt={"default": 512})


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service(tmp_path_factory.mktemp("openai") / "home", studio="false") as found:
        found.up()
        with found.client() as client:
            for graph in (bagel(), orpheus(), llm()):
                client.deploy(graph, name=graph["name"])
            client.deploy("reach", "reach_one_cpu")
        for name in ("shapes", "bagel", "orpheus", "llm", "reach"):
            found.wait_ready(name)
        yield found


@pytest.fixture(scope="package")
def client(running: Service) -> Iterator[openai.OpenAI]:
    """Does not try again by itself: a test that wants it says `with_options(max_retries=...)`."""
    base = f"{running.told['url']}/v1"
    with openai.OpenAI(base_url=base, api_key=running.token, max_retries=0, timeout=SECONDS) as found:
        yield found


@pytest_asyncio.fixture
async def aio(running: Service) -> AsyncIterator[openai.AsyncOpenAI]:
    base = f"{running.told['url']}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key=running.token, max_retries=0, timeout=SECONDS) as found:
        yield found
