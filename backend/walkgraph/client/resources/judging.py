"""Calls that judge and show graphs, stored or not: checks, plans, simulations, programs and drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Call, described, send
from walkgraph.client.shown import Scalar


class JudgingCalls:
    @described
    def check(self, document: Any) -> Call[shown.Check]:
        """Check a graph and list every problem."""
        return send("POST", "/api/v1/graphs/check", document)

    @described
    def plan(self, graph: Any, placement: Any | None = None, hardware: str | None = None) -> Call[shown.Plan]:
        """Plan a graph. `hardware`: GPUs that need not exist here, such as `3x141GB` or `2 hosts x 3x141GB`; or
        `cluster`, the hosts of the service's cluster, as if nothing ran there."""
        body = {"graph": graph, "placement": placement, "hardware": hardware}
        return send("POST", "/api/v1/plans", {key: value for key, value in body.items() if value is not None})

    @described
    def python(self, graph: Any) -> Call[str]:
        """A Python program that makes the same graph."""
        return Call("POST", "/api/v1/graphs/python", _program, body={"graph": graph})

    @described
    def simulate(
        self,
        graph: Any,
        task: str,
        params: Mapping[str, Scalar] | None = None,
        inputs: Mapping[str, int] | None = None,
        parts: Sequence[str] = (),
        turns: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> Call[shown.Simulation]:
        """Explain a request without running it. `inputs`: the number of values for each. `turns`: those of a
        conversation, as `{"role": "user", "parts": ["text"]}`. `more`: a `placement`, to see what goes from host to
        host; its `hardware`, as for `plan`; `sizes`, the bytes of the values of edges by their pointers."""
        given: dict[str, Any] = {"params": dict(params or {}), "inputs": dict(inputs or {}), "parts": list(parts)}
        given |= {"turns": [dict(turn) for turn in turns]} if turns else {}
        return send("POST", "/api/v1/graphs/simulate", {"graph": graph, "task": task, **given, **more})

    @described
    def drawing(self, name: str, walk: str | None = None) -> Call[str]:
        """A drawing of a graph, or of one of its Walks, as Mermaid text."""
        params: dict[str, str | int | float] = {} if walk is None else {"walk": walk}
        return Call("GET", "/api/v1/graphs/{name}/drawing", _text, {"name": name}, params)


def _program(answer: httpx.Response) -> str:
    return answer.json()["text"]


def _text(answer: httpx.Response) -> str:
    return answer.text
