"""Calls that look inside: taps, breakpoints, traces, figures."""

from __future__ import annotations

from typing import Any, Literal

import httpx

from walkgraph.client import shown
from walkgraph.client.calls import Call, delete, described, get, send
from walkgraph.client.shown import Level

_DEPLOYMENT = "/api/v1/deployments/{deployment}"
_TRACE = "/api/v1/runs/{run}/trace"


class WatchCalls:
    @described
    def watch(self, deployment: str) -> Call[shown.Watch]:
        """The level of its telemetry, its taps and its breakpoints."""
        return get(_DEPLOYMENT + "/watch", deployment=deployment)

    @described
    def set_level(self, deployment: str, level: Level) -> Call[shown.Watch]:
        """How much is told of what runs; it counts at once."""
        return send("PUT", _DEPLOYMENT + "/watch/level", {"level": level}, deployment=deployment)

    @described
    def tap(self, deployment: str, walk: str, source: str, **more: Any) -> Call[shown.Tap]:
        """Look at the values that leave `use.port`, or come in as `@in.name`; they come as samples in the frames of
        `telemetry`. `more`: `to` (the end of one edge, to see what goes over it alone: of one out of a loop, what
        leaves the loop), `interval` and `seconds` (until it goes by itself), `preview`, `run`."""
        body = {"walk": walk, "source": source, **more}
        return send("POST", _DEPLOYMENT + "/taps", body, deployment=deployment)

    @described
    def change_tap(self, deployment: str, tap: str, interval: float) -> Call[shown.Tap]:
        """`interval`: seconds between two samples of a rank."""
        return send("PATCH", _DEPLOYMENT + "/taps/{tap}", {"interval": interval}, deployment=deployment, tap=tap)

    @described
    def remove_tap(self, deployment: str, tap: str) -> Call[None]:
        """Look no more."""
        return delete(_DEPLOYMENT + "/taps/{tap}", deployment=deployment, tap=tap)

    @described
    def set_breakpoint(self, deployment: str, walk: str, use: str, **more: Any) -> Call[shown.Breakpoint]:
        """Pause runs before the calls of a use. `more`: `iteration` (of the innermost loop), `run`, `seconds`."""
        body = {"walk": walk, "use": use, **more}
        return send("POST", _DEPLOYMENT + "/breakpoints", body, deployment=deployment)

    @described
    def remove_breakpoint(self, deployment: str, id_: str) -> Call[None]:
        """Runs that are paused at it stay so."""
        route = _DEPLOYMENT + "/breakpoints/{breakpoint_}"
        return delete(route, deployment=deployment, breakpoint_=id_)

    @described
    def trace(self, run: str) -> Call[dict[str, Any]]:
        """What a run did, on which rank, when; also while it goes on."""
        return get(_TRACE, run=run)

    @described
    def trace_file(self, run: str, form: Literal["perfetto", "otlp"]) -> Call[bytes]:
        """For ui.perfetto.dev, or as the body of an OpenTelemetry export."""
        return Call("GET", _TRACE, _content, {"run": run}, {"format": form})

    @described
    def why(self, run: str) -> Call[shown.Why]:
        """Where its time went, and what it waited for."""
        return get("/api/v1/runs/{run}/why", run=run)

    @described
    def traces(self, deployment: str, limit: int = 20, task: str | None = None) -> Call[list[shown.TraceListed]]:
        """Those that are kept, newest first."""
        return get(_DEPLOYMENT + "/traces", {"limit": limit, "task": task}, deployment=deployment)

    @described
    def statistics(self, deployment: str, task: str | None = None) -> Call[shown.Statistics]:
        """What its nodes took, over the traces that are kept."""
        return get(_DEPLOYMENT + "/statistics", {"task": task}, deployment=deployment)


def _content(answer: httpx.Response) -> bytes:
    return answer.content
