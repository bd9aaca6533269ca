"""Measures the starter on this machine: starts, single and concurrent pictures, equal pictures everywhere, a killed
worker.

    ./dev bench first_light

Prints a table and writes it to `benchmarks/results/first_light.json` with the command, machine, date and commit. On
CPUs, only the ratios are comparable between machines.
"""

import argparse
import base64
import io
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from _service import home, is_ready, report, service, when
from PIL import Image

from walkgraph.client import Client, ProblemError

PROMPT = "a red circle left of a blue square"
RESULTS = Path(__file__).parent / "results" / "first_light.json"
DRAW = "text_to_image"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--out", type=Path, default=RESULTS)
    given = arguments.parse_args()
    figures: dict[str, Any] = {}
    with home() as folder:
        began = time.perf_counter()
        with service(folder) as first:
            draw(first.client, 1)
            figures["first start to first picture, s"] = time.perf_counter() - began
        with service(folder) as second:
            figures["second start, s"] = second.seconds
            draw(second.client, 1)
            figures |= throughput(second.client, given.rounds)
            figures |= tasks(second.client, given.rounds)
            figures |= sameness(second.client)
            figures |= killed(second.client, given.rounds)
    report("./dev bench first_light", figures, given.out)


def draw(client: Client, seed: int, deployment: str = "shapes", **params: Any) -> bytes:
    request = {"inputs": {"prompt": PROMPT}, "params": {"seed": seed, **params}}
    return picture(client.run(deployment, DRAW, request)["outputs"]["image"])


def picture(values: list[dict[str, Any]]) -> bytes:
    return base64.b64decode(values[0]["data"])


def timed(work: Callable[..., object], *arguments: Any) -> float:
    began = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - began


def together(client: Client, count: int, first_seed: int = 100) -> tuple[float, list[bytes]]:
    with ThreadPoolExecutor(count) as pool:
        began = time.perf_counter()
        pictures = list(pool.map(lambda i: draw(client, first_seed + i), range(count)))
        return time.perf_counter() - began, pictures


def throughput(client: Client, rounds: int) -> dict[str, float]:
    one = statistics.median(timed(draw, client, 100 + i) for i in range(rounds))
    found = {"text to picture, 49 guided steps, one run, s": one}
    for count in (8, 16):
        seconds = statistics.median(together(client, count)[0] for _ in range(max(3, rounds // 2)))
        found[f"{count} at once, s"] = seconds
        found[f"{count} at once / {count} times one"] = seconds / (count * one)
    return found


def tasks(client: Client, rounds: int) -> dict[str, float]:
    source = {"type": "image", "data": base64.b64encode(draw(client, 7)).decode()}
    text = {"type": "text", "text": "make the circle green"}
    describe = {"inputs": {"parts": [source]}}
    change = {"inputs": {"parts": [source, text]}, "params": {"seed": 1}}
    caption = statistics.median(timed(client.run, "shapes", "image_to_text", describe) for _ in range(rounds))
    edit = statistics.median(timed(client.run, "shapes", "edit", change) for _ in range(rounds))
    return {"picture to text, one run, s": caption, "edit, one run, s": edit}


def sameness(client: Client) -> dict[str, float]:
    """Largest difference of any channel, of 255, between pictures that must be the same."""
    alone = [pixels(draw(client, 100 + i)) for i in range(8)]
    batch = [pixels(data) for data in together(client, 8)[1]]
    client.deploy("shapes", "shapes_cfg3_cpu", "apart")
    when(client, "apart", is_ready)
    apart = [pixels(draw(client, 100 + i, "apart")) for i in range(8)]
    seconds = statistics.median(timed(draw, client, 100 + i, "apart") for i in range(5))
    client.undeploy("apart")
    return {
        "alone / again, largest difference of 255": difference(
            alone, [pixels(draw(client, 100 + i)) for i in range(8)]
        ),
        "alone / in a batch of 8, largest difference of 255": difference(alone, batch),
        "alone / guidance on three processes, largest difference": difference(alone, apart),
        "text to picture, guidance on three processes, s": seconds,
    }


def pixels(data: bytes) -> "np.ndarray[Any, np.dtype[np.int16]]":
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), dtype=np.int16)


def difference(some: list[Any], others: list[Any]) -> int:
    return max(int(np.abs(a - b).max()) for a, b in zip(some, others, strict=True))


def killed(client: Client, rounds: int) -> dict[str, Any]:
    """A worker killed in the middle of its loop, beside a deployment that must notice nothing."""
    client.deploy("shapes", None, "other")
    when(client, "other", is_ready)
    lost: list[float] = []
    back: list[float] = []
    codes: set[str] = set()
    beside_errors = 0
    count = 4
    for _ in range(rounds):
        ended: dict[str, Any] = {}
        runs = [threading.Thread(target=_until_lost, args=(client, ended, i)) for i in range(count)]
        for run in runs:
            run.start()
        busy = when(client, "shapes", lambda found: found["running"] == count)
        pid = busy["ranks"][0]["pid"]
        at = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        try:
            draw(client, 5, "other")
        except ProblemError:
            beside_errors += 1
        for run in runs:
            run.join()
        lost.append(max(t for t, _ in ended.values()) - at)
        codes |= {code for _, code in ended.values()}
        when(client, "shapes", is_ready)
        draw(client, 3)
        back.append(time.perf_counter() - at)
    client.undeploy("other")
    return {
        "worker killed: its runs ended after at most, s": max(lost),
        "worker killed: errors of its runs": sorted(codes),
        "worker killed: a picture again after at most, s": max(back),
        "worker killed: errors on the other deployment": beside_errors,
    }


def _until_lost(client: Client, ended: dict[str, Any], index: int) -> None:
    try:
        draw(client, index, steps=200)
        ended[str(index)] = time.perf_counter(), "none"
    except ProblemError as error:
        ended[str(index)] = time.perf_counter(), error.code


if __name__ == "__main__":
    main()
