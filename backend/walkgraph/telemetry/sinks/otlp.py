"""A trace as OpenTelemetry spans, in the JSON form of the OTLP request that any collector takes.

    run        kind server, below the caller's span where its request had a `traceparent`
    Walk step  below the run
    node       below its Walk step, one for each block; of a run with very many, one for several that
               follow each other in a lane and Walk step
    transfer   below its Walk step; of a stream, below the run

Ids are derived from the run's, so that repeated exports are equal. Times of the spans are seconds since 1970.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from walkgraph import __version__
from walkgraph.telemetry import traceparent
from walkgraph.telemetry.trace import FOLDED, LAUNCH, Trace

MEDIA_TYPE = "application/json"
MAX_SPANS = 4096
"""The most spans of nodes, and of transfers. Beyond that, consecutive ones are merged, and the run's span counts those
left out."""

_INTERNAL, _SERVER = 1, 2
_OK, _ERROR = 1, 2
_SAMPLED = 1

Span = dict[str, Any]
Scalar = str | bool | int | float


def encode(trace: Trace) -> bytes:
    """The body of a POST to `/v1/traces`."""
    return msgspec.json.encode(request(trace))


def request(trace: Trace) -> dict[str, Any]:
    """An `ExportTraceServiceRequest`."""
    resource = {"service.name": "walkgraph", "service.version": __version__, "service.instance.id": trace.deployment}
    scope = {"name": "walkgraph.telemetry", "version": __version__}
    scoped = {"scope": scope, "spans": _Writer(trace).spans()}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scoped]}]}


class _Writer:
    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._caller = traceparent.parse(trace.parent)
        self._own = traceparent.of_run(trace.run, self._caller)
        self._began = round(trace.wall * 1e9)

    def spans(self) -> list[Span]:
        nodes, nodes_left = self._nodes()
        hops, hops_left = self._hops()
        return [self._run(nodes_left + hops_left), *self._steps(), *nodes, *hops]

    def _run(self, left_out: int) -> Span:
        trace = self._trace
        attributes: dict[str, Scalar] = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.provider.name": "walkgraph",
            "gen_ai.workflow.name": trace.task,
            "gen_ai.request.model": trace.deployment,
            "gen_ai.response.id": trace.run,
            "walkgraph.run": trace.run,
            "walkgraph.deployment": trace.deployment,
            "walkgraph.task": trace.task,
            "walkgraph.state": trace.state,
            "walkgraph.telemetry.level": trace.level,
        }
        phases = trace.phases
        if "first_output" in phases:
            attributes["gen_ai.server.time_to_first_token"] = phases["first_output"] / 1e6
        if "started" in phases:
            attributes["walkgraph.queued_seconds"] = (phases["started"] - phases.get("queued", 0)) / 1e6
        if trace.error is not None:
            attributes["error.type"] = trace.error
        if trace.lost:
            attributes["walkgraph.lost_events"] = trace.lost
        if trace.early:
            attributes["walkgraph.early_transfers"] = trace.early
        if left_out:
            attributes["walkgraph.spans_left_out"] = left_out
        span = self._span(f"invoke_workflow {trace.task}", self._own.span, (0, round(trace.seconds * 1e6)), attributes)
        span["kind"] = _SERVER
        if self._caller is not None:
            span["parentSpanId"] = self._caller.span
        known = sorted(phases.items(), key=lambda phase: phase[1])
        span["events"] = [{"timeUnixNano": self._time(at), "name": name} for name, at in known]
        if trace.state in ("done", "failed"):
            span["status"] = {"code": _OK} if trace.error is None else {"code": _ERROR, "message": trace.error}
        return span

    def _steps(self) -> list[Span]:
        """One span per Walk step, from the start of its first call to the end of its last one."""
        blocks, hops = self._trace.blocks, self._trace.hops
        found: dict[tuple[int, int], tuple[int, int]] = {}
        ranks: dict[tuple[int, int], set[int]] = defaultdict(set)
        for row, key in enumerate(zip(blocks.walk, blocks.step, strict=True)):
            low, high = found.get(key, (blocks.started[row], blocks.finished[row]))
            found[key] = (min(low, blocks.started[row]), max(high, blocks.finished[row]))
            ranks[key].add(self._trace.lanes[blocks.lane[row]].rank)
        for row, key in enumerate(zip(hops.walk, hops.step, strict=True)):
            # The block of its node may have been left out, but a parent must exist.
            if hops.step[row] >= 0:
                found.setdefault(key, (hops.sent[row], max(hops.sent[row], hops.arrived[row])))
        return [
            self._below(
                f"walk {self._trace.names[walk]}",
                self._step_id(walk, step),
                span,
                {
                    "walkgraph.walk": self._trace.names[walk],
                    "walkgraph.step": step,
                    "walkgraph.ranks": ",".join(map(str, sorted(ranks[walk, step]))),
                },
            )
            for (walk, step), span in sorted(found.items(), key=lambda entry: entry[1])
        ]

    def _nodes(self) -> tuple[list[Span], int]:
        """The spans of nodes, and how many were left out."""
        blocks = self._trace.blocks
        groups = [[row] for row in range(len(blocks.lane))]
        if len(groups) > MAX_SPANS:
            keys = zip(blocks.lane, blocks.walk, blocks.use, blocks.step, strict=True)
            groups = _together(groups, list(keys))
        return [self._node(rows) for rows in groups[:MAX_SPANS]], max(0, len(groups) - MAX_SPANS)

    def _node(self, rows: Sequence[int]) -> Span:
        """The span of blocks with one lane, use and Walk step."""
        blocks, names, first = self._trace.blocks, self._trace.names, rows[0]
        lane = self._trace.lanes[blocks.lane[first]]
        devices = self._trace.devices
        attributes: dict[str, Scalar] = {
            "walkgraph.node": lane.name,
            "walkgraph.rank": lane.rank,
            "walkgraph.walk": names[blocks.walk[first]],
            "walkgraph.step": blocks.step[first],
            "walkgraph.iteration": ",".join(map(str, blocks.iteration[first])),
            "walkgraph.calls": sum(blocks.count[row] for row in rows),
            "walkgraph.batch": max(blocks.batch[row] for row in rows),
            "walkgraph.busy_seconds": sum(blocks.busy[row] for row in rows) / 1e6,
            "walkgraph.queued_seconds": sum(blocks.queued[row] for row in rows) / 1e6,
            "walkgraph.kind": _kind(blocks.kind[first], together=len(rows) > 1),
        }
        if blocks.use[first] >= 0:
            attributes["walkgraph.use"] = names[blocks.use[first]]
        if lane.rank < len(devices):
            attributes["walkgraph.device"] = devices[lane.rank]
        attributes |= self._clock(lane.rank)
        if lane.loop:
            attributes["walkgraph.loop.nodes"] = ",".join(lane.nodes)
        parent = self._step_id(blocks.walk[first], blocks.step[first])
        id_ = traceparent.span_id("block", self._trace.run, first)
        start, end = min(blocks.started[row] for row in rows), max(blocks.finished[row] for row in rows)
        word = "loop" if lane.loop else "node"
        span = self._below(f"{word} {lane.name}", id_, (start, end), attributes, parent)
        if any(blocks.failed[row] for row in rows):
            span["status"] = {"code": _ERROR, "message": self._trace.error or "failed"}
        return span

    def _hops(self) -> tuple[list[Span], int]:
        """The spans of transfers, and how many were left out."""
        hops, names = self._trace.hops, self._trace.names
        found: list[Span] = []
        for row in range(min(len(hops.sent), MAX_SPANS)):
            attributes: dict[str, Scalar] = {
                "walkgraph.edge": names[hops.edge[row]],
                "walkgraph.source_rank": hops.source[row],
                "walkgraph.target_rank": hops.target[row],
                "walkgraph.transport": names[hops.transport[row]],
                "walkgraph.count": hops.count[row],
                "walkgraph.bytes": hops.nbytes[row],
                "walkgraph.iteration": ",".join(map(str, hops.key[row])),
                **self._clock(hops.source[row], hops.target[row]),
            }
            parent = self._step_id(hops.walk[row], hops.step[row]) if hops.step[row] >= 0 else None
            id_ = traceparent.span_id("hop", self._trace.run, row)
            ends = (hops.sent[row], hops.arrived[row])
            found.append(self._below(f"transfer {names[hops.edge[row]]}", id_, ends, attributes, parent))
        return found, len(hops.sent) - len(found)

    def _clock(self, *ranks: int) -> dict[str, Scalar]:
        """The hosts of ranks that aren't the service's, and the bound of what is wrong with their times."""
        hosts = [host for host in dict.fromkeys(map(self._trace.host_of, ranks)) if host]
        if not hosts:
            return {}
        error = self._trace.error_of(*ranks) / 1e6
        return {"walkgraph.host": ",".join(hosts), "walkgraph.clock_error_seconds": error}

    # ── spans ───────────────────────────────────────────────────────────────────────────────────

    def _step_id(self, walk: int, step: int) -> str:
        return traceparent.span_id("step", self._trace.run, self._trace.names[walk], step)

    def _below(
        self, name: str, id_: str, ends: tuple[int, int], attributes: Mapping[str, Scalar], parent: str | None = None
    ) -> Span:
        return self._span(name, id_, ends, attributes) | {"kind": _INTERNAL, "parentSpanId": parent or self._own.span}

    def _span(self, name: str, id_: str, ends: tuple[int, int], attributes: Mapping[str, Scalar]) -> Span:
        start, end = ends
        return {
            "traceId": self._own.trace,
            "spanId": id_,
            "flags": _SAMPLED if self._own.sampled else 0,
            "name": name,
            "startTimeUnixNano": self._time(start),
            "endTimeUnixNano": self._time(max(start, end)),
            "attributes": _attributes(attributes),
        }

    def _time(self, at: int) -> str:
        """Nanoseconds since 1970, as text: JSON carries 64-bit integers that way."""
        return str(self._began + at * 1000)


def _kind(kind: int, *, together: bool) -> str:
    return "folded" if together or kind == FOLDED else "launch" if kind == LAUNCH else "call"


def _together(groups: Sequence[list[int]], keys: Sequence[object]) -> list[list[int]]:
    """Merge groups: rows of one key in order, cut into pieces of a length that gives about as many groups as
    allowed."""
    by_key: dict[object, list[int]] = defaultdict(list)
    for rows, key in zip(groups, keys, strict=True):
        by_key[key].extend(rows)
    size = -(-len(groups) // max(1, MAX_SPANS - len(by_key)))
    parts = [rows[at : at + size] for rows in by_key.values() for at in range(0, len(rows), size)]
    return sorted(parts)


def _attributes(values: Mapping[str, Scalar]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Scalar) -> dict[str, Scalar]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": value}
