"""Measures how much the decoding of pictures delays other runs of a rank: milliseconds between the tokens of a run.

    python benchmarks/decoding.py [--side 1024] [--tokens 200] [--rounds 7] [--model qwen3-tiny] [--out FILE] [--check]

An engine serves both, without a server: a language model with random weights, whose next call follows the last, and a
decoder of pictures that gets a JPEG whenever it has none. `undisturbed` is without pictures, `threads` as served, `in
place` with pictures decoded by the engine's own thread. The three take turns, so that whatever else the machine does
falls on all of them. `ratio` is the 95th percentile over that of the undisturbed one in the same round: the median of
all rounds.

`cameras` has three pictures of 224 by 224 decoded at once by threads, as a robot sends them: milliseconds until all are
there, and of the processor. `at once` are plain JPEGs; `by Pillow` are the same with an Exif segment, which Pillow
reads. `ratio` is over `by Pillow` in the same round: the median.
"""

import argparse
import io
import select
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from _common import ROOT, Row, show, spread, write
from PIL import Image

from tests.unit.engine.plans import call, plan_of
from walkgraph.abi.calls import Call
from walkgraph.engine.engine import Done, Engine
from walkgraph.ids import Rank

RESULTS = ROOT / "benchmarks" / "results" / "decoding.json"
FORMS = ("undisturbed", "threads", "in place")
CAMERA, CAMERA_ROUNDS = 224, 300
STATES = {"kv": "main", "seen": "seen"}
SAMPLING = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip
PICTURE = {"crop": False, "size": 0, "min_side": 0, "max_side": 224, "stride": 1, "max_pixels": 1 << 24,
           "resample": "bicubic"}  # fmt: skip


def main() -> None:
    given = options()
    rounds, tokens = (1, 3) if given.check else (given.rounds, given.tokens)
    engines = {threaded: engine_of(given.model, threaded=threaded) for threaded in (True, False)}
    picture = photograph(64 if given.check else given.side)
    found = {form: list[dict[str, float]]() for form in FORMS}
    for number in range(rounds + 1):
        for form in FORMS:
            drawn = () if form == "undisturbed" else (decoding(picture),)
            between = gaps(engines[form != "in place"], drawn, tokens, f"{form} {number}")
            if number or given.check:  # the first round warms up
                found[form].append(spread(between, 1e3))
    rows: list[Row] = [
        {
            "form": form,
            "median": statistics.median(one["median"] for one in found[form]),
            "p95": statistics.median(one["p95"] for one in found[form]),
            "ratio": statistics.median(
                one["p95"] / alone["p95"] for one, alone in zip(found[form], found["undisturbed"], strict=True)
            ),
        }
        for form in FORMS
    ]
    show("milliseconds between tokens", rows)
    seen = cameras(engines[True], 3 if given.check else CAMERA_ROUNDS)
    show("milliseconds of three cameras", seen)
    if not given.check:
        write(given.out, "cpu", {"rows": rows, "cameras": seen})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--side", type=int, default=1024, help="of the pictures, in pixels")
    arguments.add_argument("--tokens", type=int, default=200)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--model", default="qwen3-tiny")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="three tokens, small pictures; writes nothing")
    return arguments.parse_args()


def engine_of(model: str, *, threaded: bool) -> Engine:
    nodes = {
        "llm": ("walkgraph.models.llm.operators:Backbone", STATES),
        "picture": ("walkgraph.models.media.operators:PictureIn", {}),
    }
    engine = Engine(plan_of(nodes, source=f"random:{model}:3"), Rank(0), threads=1, threaded=threaded)
    engine.load()
    return engine


def gaps(engine: Engine, again: Sequence[Call], tokens: int, run: str) -> list[float]:
    """Seconds between the tokens of a run. `again`: calls that are made all the time."""
    last, between = 0.0, list[float]()
    engine.add(token(run, torch.arange(16), ()))
    for one in again:
        engine.add(one)
    while len(between) < tokens:
        for event in engine.step():
            if not isinstance(event, Done):
                continue
            if event.error is not None:
                raise RuntimeError(event.error.message)
            if event.call.node != "llm":
                engine.add(decoding(event.call.inputs["image"]))
                continue
            now = time.perf_counter()
            if last:
                between.append(now - last)
            last = now
            engine.add(token(run, event.outputs["token"], (len(between),)))
    engine.drop(run)
    engine.drop("pictures")
    while not engine.idle:
        engine.step()
    return between


def cameras(engine: Engine, rounds: int) -> list[Row]:
    plain = photograph(CAMERA)
    pictures = {"at once": plain, "by Pillow": with_exif(plain)}
    found = {form: list[tuple[float, float]]() for form in pictures}
    for _ in range(rounds):
        for form, picture in pictures.items():
            began, used = time.perf_counter(), time.process_time()
            for _ in range(3):
                engine.add(decoding(picture))
            done = 0
            while done < 3:
                if engine.resting and engine.wakes is not None:
                    select.select([engine.wakes], [], [])
                done += sum(isinstance(event, Done) for event in engine.step())
            found[form].append((1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - used)))
    rows: list[Row] = []
    for form, measured in found.items():
        ratios = [one / other for (one, _), (other, _) in zip(measured, found["by Pillow"], strict=True)]
        there, used = (statistics.median(one[at] for one in measured) for at in (0, 1))
        rows.append({"form": form, "there": there, "processor": used, "ratio": statistics.median(ratios)})
    return rows


def with_exif(jpeg: bytes) -> bytes:
    """The same picture with an Exif segment that says nothing."""
    content = Image.Exif().tobytes()
    return jpeg[:2] + b"\xff\xe1" + (len(content) + 2).to_bytes(2, "big") + content + jpeg[2:]


def token(run: str, given: torch.Tensor, iteration: tuple[int, ...]) -> Call:
    name = "token" if iteration else "ids"
    return call("llm", {name: given}, run=run, states=STATES, iteration=iteration, draws=5, **SAMPLING)


def decoding(picture: bytes) -> Call:
    return call("picture", {"image": picture}, run="pictures", **PICTURE)


def photograph(side: int) -> bytes:
    """A JPEG with the detail of a photograph."""
    grain = np.random.default_rng(0).normal(0, 12, (side, side, 3))
    shades = np.linspace(0, 220, side)[:, None, None] + grain
    out = io.BytesIO()
    Image.fromarray(shades.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


if __name__ == "__main__":
    main()
