"""Calls that look inside: taps, breakpoints, traces, statistics."""

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
        """The level of a deployment's telemetry, its taps and its breakpoints."""
        return get(_DEPLOYMENT + "/watch", deployment=deployment)

    @described
    def set_level(self, deployment: str, level: Level) -> Call[shown.Watch]:
        """Set the level of detail of a deployment's telemetry; it applies at once."""
        return send("PUT", _DEPLOYMENT + "/watch/level", {"level": level}, deployment=deployment)

    @described
    def tap(self, deployment: str, walk: str, source: str, **more: Any) -> Call[shown.Tap]:
        """Sample the values that leave `use.port` or come in as `@in.name`; samples arrive in the frames of
        `telemetry`. `more`: `to` (the end of one edge, to see only its values: for an edge out of a loop, what leaves
        the loop), `interval` and `seconds` (until the tap expires), `preview`, `run`."""
        body = {"walk": walk, "source": source, **more}
        return send("POST", _DEPLOYMENT + "/taps", body, deployment=deployment)

    @described
    def change_tap(self, deployment: str, tap: str, interval: float) -> Call[shown.Tap]:
        """Change a tap. `interval`: seconds between two samples of a rank."""
        return send("PATCH", _DEPLOYMENT + "/taps/{tap}", {"interval": interval}, deployment=deployment, tap=tap)

    @described
    def remove_tap(self, deployment: str, tap: str) -> Call[None]:
        """Remove a tap."""
        return delete(_DEPLOYMENT + "/taps/{tap}", deployment=deployment, tap=tap)

    @described
    def set_breakpoint(self, deployment: str, walk: str, use: str, **more: Any) -> Call[shown.Breakpoint]:
        """Pause runs before the calls of a use. `more`: `iteration` (of the innermost loop), `run`, `seconds`."""
        body = {"walk": walk, "use": use, **more}
        return send("POST", _DEPLOYMENT + "/breakpoints", body, deployment=deployment)

    @described
    def remove_breakpoint(self, deployment: str, id_: str) -> Call[None]:
        """Remove a breakpoint. Runs that are paused at it stay paused."""
        route = _DEPLOYMENT + "/breakpoints/{breakpoint_}"
        return delete(route, deployment=deployment, breakpoint_=id_)

    @described
    def trace(self, run: str) -> Call[dict[str, Any]]:
        """The trace of a run: what it did, when and on which rank; also while it goes on. `clocks`: the most
        microseconds by which times of each other host may be wrong."""
        return get(_TRACE, run=run)

    @described
    def trace_file(self, run: str, form: Literal["perfetto", "otlp"]) -> Call[bytes]:
        """The trace as a file for ui.perfetto.dev, or as the body of an OpenTelemetry export."""
        return Call("GET", _TRACE, _content, {"run": run}, {"format": form})

    @described
    def why(self, run: str) -> Call[shown.Why]:
        """The shares of the run's time, and what it waited for."""
        return get("/api/v1/runs/{run}/why", run=run)

    @described
    def traces(self, deployment: str, limit: int = 20, task: str | None = None) -> Call[list[shown.TraceListed]]:
        """Kept traces, newest first."""
        return get(_DEPLOYMENT + "/traces", {"limit": limit, "task": task}, deployment=deployment)

    @described
    def statistics(self, deployment: str, task: str | None = None) -> Call[shown.Statistics]:
        """Durations by node, over the kept traces."""
        return get(_DEPLOYMENT + "/statistics", {"task": task}, deployment=deployment)


def _content(answer: httpx.Response) -> bytes:
    return answer.content
