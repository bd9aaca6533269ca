"""Stop sequences in pieces are those of the whole text, however it is cut up."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest

from tests.support.placing import DOCUMENT
from walkgraph.errors import ErrorInfo
from walkgraph.graph import codec
from walkgraph.ids import RunId
from walkgraph.service.http.problems import Unprocessable
from walkgraph.service.runs.runs import LiveRun
from walkgraph.service.runs.tasks import read_request, request_schema
from walkgraph.service.values.stops import Cut, Cutter, stops_of
from walkgraph.wire import messages as m

TASK = codec.load(DOCUMENT).tasks["talk"]


def naive(text: str, stops: list[str]) -> tuple[str, bool]:
    """One character more at a time, until a stop stands at the end."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


def in_pieces(draw: random.Random, text: str) -> list[str]:
    cuts = sorted(draw.randrange(len(text) + 1) for _ in range(draw.randrange(6)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("seed", range(300))
def test_pieces_are_cut_as_the_whole(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choice("ab") for _ in range(draw.randrange(30)))
    stops = ["".join(draw.choice("ab") for _ in range(draw.randrange(1, 6))) for _ in range(draw.randrange(4))]
    cutter = Cutter(stops)
    told = "".join(cutter.feed(piece) for piece in in_pieces(draw, text))
    assert (told + cutter.finish(), cutter.stopped) == naive(text, stops)


def test_what_can_be_no_stop_is_told_at_once() -> None:
    cutter = Cutter(["\n\n", "END"])
    assert [cutter.feed(piece) for piece in ("one", "E", "N", "X", "\n", "two", "\n", "\n", "three")] == [
        "one", "", "", "ENX", "", "\ntwo", "", "", "",
    ]  # fmt: skip
    assert cutter.stopped
    assert cutter.finish() == ""


# ── runs ────────────────────────────────────────────────────────────────────────────────────────


def live(*stops: str) -> tuple[LiveRun, list[Any]]:
    asked: list[Any] = []
    run = LiveRun(m.Submit(run=RunId("r"), task="t", params={}, inputs={}), "d", asked.append)
    run.cut = Cut("text", stops)
    return run, asked


def say(run: LiveRun, *texts: str) -> None:
    for i, text in enumerate(texts):
        for name in ("text", "more"):
            value = m.Small(value=text)
            run.take(m.Output(run=run.id, name=name, index=i, value=value, iteration=(i,), modality="text"))


def told(run: LiveRun, name: str) -> str:
    return "".join(str(one.value.value) for one in run.outputs if one.name == name and isinstance(one.value, m.Small))


def test_a_stop_ends_the_run_without_an_error() -> None:
    run, asked = live("END")
    say(run, "one ", "E", "ND two", "three")
    assert asked == [m.Abort(run=run.id)]
    run.take(m.Finished(run=run.id, error=ErrorInfo(code="cancelled", message="cancelled")))
    assert (told(run, "text"), run.state) == ("one ", "done")
    assert told(run, "more") == "one END two", "what belongs to the last text stays, and nothing behind it"


def test_text_that_was_held_back_comes_before_the_end() -> None:
    run, asked = live("END")
    say(run, "one ", "EN")
    assert told(run, "text") == "one "
    run.take(m.Finished(run=run.id))
    assert (told(run, "text"), asked, run.state) == ("one EN", [], "done")
    indices = [one.index for one in run.outputs if one.name == "text"]
    assert indices == [0, 1, 2]


def test_a_failure_before_a_stop_stays_one() -> None:
    run, _ = live("END")
    say(run, "one")
    run.take(m.Finished(run=run.id, error=ErrorInfo(code="worker_lost", message="lost")))
    assert run.state == "failed"


@pytest.mark.parametrize("given", [5, ["a"] * 5, [""], ["a", 1], {"a": 1}, "x" * 257])
def test_what_is_no_list_of_stops_is_a_fault(given: Any) -> None:
    with pytest.raises(Unprocessable) as refusal:
        read_request(RunId("r"), "talk", TASK, {"inputs": {"prompt": "a"}, "stop": given}, 5.0)
    assert "/stop" in [fault.pointer for fault in refusal.value.faults]


def test_stops_are_one_or_several() -> None:
    assert stops_of("a") == ("a",)
    assert stops_of(["a", "bc"]) == ("a", "bc")
    assert stops_of(None) == stops_of([]) == ()
    jsonschema.validate({"inputs": {"prompt": "a"}, "stop": ["a", "b"]}, request_schema("talk", TASK))
