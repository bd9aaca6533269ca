"""Turn samples into the figures of a report. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from walkgraph.cli.benching.load import Measured
from walkgraph.cli.benching.wire import Sample
from walkgraph.errors import InvalidInput

BUSY = 0.8
"""Share of a core above which the client itself may be the bottleneck."""
GOALS = {"ttft": "time to the first output", "itl": "mean time between outputs", "e2e": "time to the end"}
_GOAL = re.compile(r"([a-z0-9]+)\s*[=:<]=?\s*([\d.]+)\s*(ms|s)\Z")
_SHARES = (0.5, 0.95, 0.99)
_POINTS = 200
"""Points of a distribution in a chart."""


def goals(text: str) -> dict[str, float]:
    """Parse `ttft=300ms,e2e=2s` into seconds by name. Raises InvalidInput."""
    found: dict[str, float] = {}
    for part in text.split(","):
        match = _GOAL.match(part.strip())
        if match is None or match[1] not in GOALS:
            raise InvalidInput(
                f"`{part.strip()}` is not a goal; write goals for {', '.join(GOALS)} as `ttft=300ms,e2e=2s`"
            )
        try:
            found[match[1]] = float(match[2]) * (0.001 if match[3] == "ms" else 1.0)
        except ValueError:
            raise InvalidInput(f"`{match[2]}` is not a number of {match[3]}") from None
    return found


def row(measured: Measured, slo: Mapping[str, float]) -> dict[str, Any]:
    """The figures of one level: times in seconds, rates per second."""
    done = [sample for sample in measured.samples if not sample.code]
    wall = max(measured.ended - measured.began, 1e-9)
    loops: Counter[str] = Counter()
    for sample in done:
        loops.update(sample.loops)
    found: dict[str, Any] = {
        "level": measured.level.name,
        "concurrency": measured.level.concurrency,
        "rate": measured.level.rate,
        "requests": len(measured.samples),
        "completed": len(done),
        "errors": dict(Counter(sample.code for sample in measured.samples if sample.code)),
        "messages": {sample.code: sample.message for sample in reversed(measured.samples) if sample.message},
        "seconds": wall,
        "throughput": len(done) / wall,
        "outputs_per_second": sum(len(sample.outputs) for sample in done) / wall,
        "bytes_per_second": sum(sample.bytes for sample in done) / wall,
        "ttft": spread([v for sample in done if (v := first(sample)) is not None]),
        "itl": spread([gap for sample in done for gap in gaps(sample)]),
        "e2e": spread([whole(sample) for sample in done]),
        "queued": spread([sample.queued for sample in done]),
        "tokens": {
            "read": sum(sample.read for sample in done),
            "found": sum(sample.found for sample in done),
            "read_per_second": sum(sample.read for sample in done) / wall,
            "loops": {name: {"iterations": n, "per_second": n / wall} for name, n in sorted(loops.items())},
        },
        "client_cpu": measured.cpu,
        "interrupted": measured.interrupted,
        "distribution": distribution([whole(sample) for sample in done]),
    }
    if slo:
        good = sum(1 for sample in done if meets(sample, slo))
        found["good"] = {"requests": good, "per_second": good / wall, "share": good / max(len(measured.samples), 1)}
    return found


def first(sample: Sample) -> float | None:
    return sample.outputs[0] - sample.due if sample.outputs else None


def gaps(sample: Sample) -> list[float]:
    return [later - sooner for sooner, later in pairwise(sample.outputs)]


def whole(sample: Sample) -> float:
    return sample.ended - sample.due


def meets(sample: Sample, slo: Mapping[str, float]) -> bool:
    """True if a sample met all goals; with a single output there is no time between outputs, so that goal is met."""
    between = gaps(sample)
    took = {"ttft": first(sample), "itl": sum(between) / len(between) if between else 0.0, "e2e": whole(sample)}
    return all((value := took[name]) is not None and value <= most for name, most in slo.items())


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, percentiles and extremes; empty without values."""
    if not values:
        return {}
    ordered = sorted(values)
    percentiles = {f"p{share * 100:.0f}": percentile(ordered, share) for share in _SHARES}
    return {"mean": sum(ordered) / len(ordered), **percentiles, "min": ordered[0], "max": ordered[-1]}


def percentile(ordered: Sequence[float], share: float) -> float:
    """A percentile, interpolated between the two nearest ranks."""
    at = share * (len(ordered) - 1)
    below = math.floor(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def distribution(values: Sequence[float]) -> list[float]:
    """At most _POINTS of the values, in order, spread evenly over their ranks."""
    ordered = sorted(values)
    if len(ordered) <= _POINTS:
        return ordered
    return [percentile(ordered, number / (_POINTS - 1)) for number in range(_POINTS)]


def _told(count: int, code: str, message: str | None) -> str:
    return f"{count} x {code} ({message})" if message else f"{count} x {code}"


def warnings(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warnings where the figures are less reliable than they look."""
    found: list[str] = []
    for one in rows:
        level = f"at {one['level']}"
        if one["client_cpu"] > BUSY:
            found.append(
                f"{level}, this client took {one['client_cpu']:.0%} of a core and may be the bottleneck; "
                "run several clients, or lower the load"
            )
        if one["completed"] < 20:
            found.append(f"{level}, only {one['completed']} requests were answered, too few for p95 and p99")
        if one["errors"]:
            failures = "; ".join(
                _told(count, code, one["messages"].get(code)) for code, count in sorted(one["errors"].items())
            )
            found.append(f"{level}, some failed: {failures}")
    return found
