"""A service that answers the command line from memory."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx

PNG = b"\x89PNG\r\n\x1a\npixels"
TASK = {
    "deployment": "shapes",
    "name": "draw",
    "label": "Draw",
    "inputs": {
        "prompt": {"modality": "text", "many": True, "optional": False, "description": "What."},
        "image": {"modality": "image", "many": False, "optional": True, "description": ""},
    },
    "params": {
        "steps": {"type": "integer", "default": 20, "min": 2, "max": 200, "choices": [], "description": ""},
        "scale": {"type": "number", "default": 1.0, "min": 0, "max": 9, "choices": [], "description": ""},
        "fast": {"type": "boolean", "default": False, "min": None, "max": None, "choices": [], "description": ""},
        "mode": {"type": "string", "default": "a", "min": None, "max": None, "choices": ["a", "b"], "description": ""},
    },
    "outputs": ["preview", "image", "text"],
}
RANK = {"rank": 0, "device": "cpu", "state": "ready", "phase": "", "fraction": 1.0, "restarts": 1}
SHAPES = {
    "id": "shapes", "graph": "shapes", "state": "ready", "reason": None, "ranks": [RANK], "running": 0, "waiting": 0,
    "restarts": 0, "revision": 3, "scratch": False,
}  # fmt: skip
PICTURE = {"type": "image", "mime": "image/png", "data": base64.b64encode(PNG).decode()}
TIMES = [{"node": "llm", "rank": 0, "calls": 3, "busy": 0.25, "queued": 0.0}]


def sse(*events: tuple[str, dict[str, Any]]) -> httpx.Response:
    text = "".join(f"event: {name}\nid: 1\ndata: {json.dumps(data)}\n\n: \n\n" for name, data in events)
    return httpx.Response(200, text=text, headers={"Content-Type": "text/event-stream"})


def output(name: str, index: int, value: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "output", {"name": name, "index": index, "iteration": [], "value": value}


class FakeService:
    """Answers by method and path; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answers: dict[tuple[str, str], httpx.Response | Callable[[httpx.Request], httpx.Response]] = {
            ("GET", "/api/v1/deployments"): httpx.Response(200, json=[SHAPES]),
            ("GET", "/api/v1/deployments/shapes"): httpx.Response(200, json=SHAPES),
            ("POST", "/api/v1/deployments"): httpx.Response(202, json={**SHAPES, "state": "starting", "ranks": []}),
            ("DELETE", "/api/v1/deployments/shapes"): httpx.Response(204),
            ("GET", "/health/ready"): httpx.Response(200, json={"status": "ready"}),
            ("GET", "/v1/tasks/shapes/draw"): httpx.Response(200, json=TASK),
            ("POST", "/api/v1/studio/codes"): httpx.Response(201, json={"code": "c", "path": "/studio/?code=c"}),
            ("POST", "/v1/tasks/shapes/draw"): sse(
                ("accepted", {"run": "r", "seed": 7}),
                output("preview", 0, PICTURE),
                output("text", 0, {"type": "text", "text": "a \x1b[31mred"}),
                output("image", 0, PICTURE),
                output("text", 1, {"type": "text", "text": " circle"}),
                ("done", {"run": "r", "seconds": 0.5, "queued": 0.01, "times": TIMES}),
            ),
        }

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        self.asked.append((request.method, request.url.path, body))
        found = self.answers.get((request.method, request.url.path))
        problem = {"code": "not_found", "detail": "there is no such thing", "errors": []}
        return (found(request) if callable(found) else found) or httpx.Response(404, json=problem)
