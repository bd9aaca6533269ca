"""Graphs whose nodes call this service's own OpenAI routes, with real processes."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.serving import Service, service


def graph(base_url: str) -> dict[str, Any]:
    server = {"base_url": base_url, "model": "shapes", "key": "secret:itself"}
    return {
        "format": "walkgraph/graph@1",
        "name": "itself",
        "nodes": {
            "draw": {"component": "openai.images", "params": server},
            "look": {"component": "openai.chat", "params": {**server, "temperature": 0.0}},
        },
        "walks": {
            "go": {
                "inputs": {"prompt": "text"},
                "body": ["draw", "look"],
                "edges": [
                    ["@in.prompt", "draw.prompt"],
                    ["draw.image", "look.image"],
                    ["draw.image", "@out.image"],
                    {"from": "look.text", "to": "@out.text", "each": True},
                ],
            }
        },
        "tasks": {
            "go": {
                "inputs": {"prompt": {"modality": "text"}},
                "outputs": ["image", "text"],
                "steps": [{"walk": "go", "with": {"prompt": "@task.prompt"}}],
            }
        },
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        origin = f"http://127.0.0.1:{free.getsockname()[1]}"
    home = tmp_path_factory.mktemp("itself") / "home"
    with service(home, studio="false", call_hosts=f'["{origin}"]') as found:
        found.up("--port", origin.rpartition(":")[2])
        with found.client() as client:
            key = client.add_key("itself", ["infer"])["secret"]
            subprocess.run(
                [*found.command, "secrets", "set", "itself", "--host", origin],
                input=key,
                env={**os.environ, "WALKGRAPH_HOME": str(home)},
                text=True,
                capture_output=True,
                check=True,
            )
            client.deploy(graph(f"{origin}/v1"), name="itself")
        for name in ("shapes", "itself"):
            found.wait_ready(name)
        yield found
        assert found.down() == 0
        assert key not in found.log


def test_a_picture_is_drawn_and_described_by_the_service_itself(running: Service) -> None:
    with running.client() as client:
        outputs = client.run("itself", "go", {"inputs": {"prompt": "a red circle on white"}})["outputs"]
        picture, pieces = outputs["image"][-1], outputs["text"]
        assert picture["mime"] == "image/png"
        request = {"inputs": {"image": picture["data"]}, "params": {"temperature": 0.0}}
        described = client.run("shapes", "image_to_text", request)["outputs"]["text"]
        assert "".join(one["text"] for one in pieces) == "".join(one["text"] for one in described)
