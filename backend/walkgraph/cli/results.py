"""What a run gives, as it comes and when it is over."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from walkgraph.cli import output, request

if TYPE_CHECKING:
    from walkgraph.client import Event


def followed(events: Iterable[Event], *, quiet: bool) -> dict[str, Any]:
    """The outputs and figures of the run that tells these, texts printed as they come unless `quiet`."""
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
        else:
            result |= {key: event.data[key] for key in ("seconds", "queued", "times")}
            result["error"] = event.data.get("error")
    if not quiet and any(value["type"] == "text" for found in result["outputs"].values() for value in found):
        output.line()
    return result


def complain(error: dict[str, Any]) -> None:
    """Of the run that ended with it."""
    where = f" (node `{error['node']}`)" if error.get("node") else ""
    output.complain(f"{error['message']}{where}", ["trying again can help"] if error.get("retryable") else [])


def show(result: dict[str, Any], files: list[str]) -> None:
    """The files that were written, and where its time went."""
    if result["error"]:
        complain(result["error"])
        return
    for file in files:
        output.line(f"wrote {file}")
    seconds = result["seconds"]
    output.note(f"\n{seconds:.2f} s, {result['queued'] * 1000:.0f} ms of it queued; seed {result['seed']}\n")
    times = sorted(result["times"], key=lambda row: -row["busy"])
    rows = [
        (r["node"], r["rank"], r["calls"], f"{r['busy'] * 1000:.1f}", f"{r['queued'] * 1000:.1f}",
         f"{r['busy'] / seconds:.0%}" if seconds else "") for r in times
    ]  # fmt: skip
    with output.on_stderr():
        output.table(("NODE", "RANK", "CALLS", "BUSY MS", "QUEUED MS", "SHARE"), rows, right=(1, 2, 3, 4, 5))
