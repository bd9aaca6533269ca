"""Show the values of a run, as they come and when it is over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from walkgraph.cli import output
from walkgraph.cli.runs import request

if TYPE_CHECKING:
    from walkgraph.client import Event


_ROWS, _SIDES = 64, 2
"""The most rows and axes of numbers that are printed."""


def followed(events: Iterable[Event], *, quiet: bool) -> dict[str, Any]:
    """Collect the outputs and figures of a run from its events; texts are printed as they come unless `quiet`."""
    result: dict[str, Any] = {"outputs": {}, "error": None, "seed": None}
    for event in events:
        if event.name == "accepted":
            result |= {"run": event.data["run"], "seed": event.data["seed"]}
        elif event.name == "output":
            value = event.data["value"]
            request.add(result["outputs"], event.data["name"], value)
            if quiet:
                continue
            if value["type"] == "text":
                sys.stdout.write(output.clean(value["text"]))
                sys.stdout.flush()
            else:
                output.note(f"{event.data['name']} {event.data['index'] + 1}")
        elif event.name == "approval":
            asks(result.get("run", ""), event.data)
        elif event.name == "decision":
            output.note("approved" if event.data["approved"] else "refused")
        else:
            result |= {key: event.data[key] for key in ("seconds", "queued", "times")}
            result["usage"] = event.data.get("usage", {})
            result["error"] = event.data.get("error")
    if not quiet and any(value["type"] == "text" for found in result["outputs"].values() for value in found):
        output.line()
    return result


def asks(run: str, asked: Mapping[str, Any]) -> None:
    """Say what a run waits for a person with, and how to answer."""
    question = asked["label"] or "a person must approve this run"
    left = max(0, round(asked["expires_at"] - time.time()))
    output.note(f"{question}\n  answer within {left} s: `walkgraph answer {run} --approve`, or `--refuse`")


def _words(values: list[dict[str, Any]]) -> str:
    """The text of a number, a boolean or an array of numbers (all values if each is a single number, otherwise the last
    one); empty for anything else."""
    value = values[-1]
    if "value" in value:
        found = value["value"]
        return f" {('no', 'yes')[found]}" if isinstance(found, bool) else f" {found}"
    numbers, shape = value.get("data"), value.get("shape")
    if not isinstance(numbers, list) or not isinstance(shape, list):
        return ""
    if shape == [1] and all(each.get("shape") == [1] for each in values):
        return "".join(f" {_number(each['data'][0])}" for each in values)
    rows = cast(list[Any], [numbers] if len(shape) == 1 else numbers)
    if len(shape) > _SIDES or len(rows) > _ROWS:
        return f" {shape}"
    return "".join("\n  " + " ".join(f"{_number(each):>9}" for each in row) for row in rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def complain(error: dict[str, Any]) -> None:
    """Print the error that ended the run."""
    where = f" (node `{error['node']}`)" if error.get("node") else ""
    output.complain(f"{error['message']}{where}", ["trying again may help"] if error.get("retryable") else [])


def show_values(outputs: Mapping[str, list[dict[str, Any]]]) -> None:
    """Print the numbers among some values."""
    for name, values in outputs.items():
        words = _words(values)
        if words:
            output.line(f"{name}:{words}")


def _cut(loop: dict[str, Any]) -> str:
    """Why a loop ended that did not end in the usual way."""
    from walkgraph.client.results import loop_name  # a client is slow to import, and most commands need none

    name, count, reason = loop_name(loop), loop["iterations"], loop["reason"]
    return f"{name} reached its limit of {count}" if reason == "bound" else f"{name}: {reason} after {count}"


def show(result: dict[str, Any], files: list[str]) -> None:
    """Print the files written, and how long the run took."""
    if result["error"]:
        complain(result["error"])
        return
    show_values(result["outputs"])
    for file in files:
        output.line(f"wrote {file}")
    seconds = result["seconds"]
    output.note(f"\n{seconds:.2f} s, {result['queued'] * 1000:.0f} ms of it queued; seed {result['seed']}")
    for loop in result["usage"].get("loops", ()):
        if loop["reason"] != "stop":
            output.note(_cut(loop))
    times = sorted(result["times"], key=lambda row: -row["busy"])
    names = [f"{row['node']} (loop)" if row.get("walk") else row["node"] for row in times]
    rows = [
        (name, r["rank"], r["calls"], f"{r['busy'] * 1000:.1f}", f"{r['queued'] * 1000:.1f}",
         f"{r['busy'] / seconds:.0%}" if seconds else "") for name, r in zip(names, times, strict=True)
    ]  # fmt: skip
    output.note("")
    with output.on_stderr():
        output.table(("NODE", "RANK", "CALLS", "BUSY MS", "QUEUED MS", "SHARE"), rows, right=(1, 2, 3, 4, 5))
