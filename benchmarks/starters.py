"""Measures quality and speed of the small policy and the small world model through the whole server.

    ./dev bench starters [--starters reach world] [--episodes 64] [--rounds 20] [--gpu] [--out FILE] [--check]

The script starts a service with the plain command in its own home. `reach`: episodes with new scenes and wordings, with
the arm's world and its films; requests with one picture for a chunk of actions. `world`: frames predicted and shown,
and goals reached by planning. It prints a table and writes it with the command, machine, date and commit. `--check`
runs two of each and writes nothing.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _service import home, is_ready, report, service, when

from walkgraph.client import Client
from walkgraph.models.reach.scene import COLOURS
from walkgraph.models.reach.words import FORMS

RESULTS = Path(__file__).parent / "results" / "starters.json"
TOGETHER = 8
FIRST = 2_000_000
"""Seed of the first episode: none that training or `evaluate` drew."""
_EACH = 2
"""Actions of a chunk that an episode takes before it looks again."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--starters", nargs="+", choices=tuple(MEASURES), default=list(MEASURES))
    arguments.add_argument("--episodes", type=int, default=64)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--gpu", action="store_true", help="use the first GPU instead of the CPU")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run two of each, as a test")
    given = arguments.parse_args()
    episodes, rounds = (2, 2) if given.check else (given.episodes, given.rounds)
    figures: dict[str, Any] = {}
    with home() as folder, service(folder, starter=False) as server:
        for name in given.starters:
            began = time.perf_counter()
            server.client.deploy(name, f"{name}_one_{'gpu' if given.gpu else 'cpu'}")
            when(server.client, name, is_ready)
            figures[f"{name}: from `deploy` to ready, s"] = time.perf_counter() - began
            figures |= MEASURES[name](server.client, episodes, rounds)
            server.client.undeploy(name)
    report("./dev bench starters", figures, None if given.check else given.out)


def reach(client: Client, episodes: int, rounds: int) -> dict[str, Any]:
    def one(number: int) -> Mapping[str, Any]:
        form = FORMS[number * 7 % len(FORMS)]
        params = {"seed": FIRST + number, "apply": _EACH}
        instruction = form.format(COLOURS[number % len(COLOURS)])
        return client.run("reach", "episode", {"inputs": {"instruction": instruction}, "params": params})

    one(episodes)
    alone = [timed(lambda number=number: one(number)) for number in range(rounds)]
    with ThreadPoolExecutor(TOGETHER) as pool:
        began = time.perf_counter()
        ended = list(pool.map(one, range(episodes)))
        seconds = time.perf_counter() - began
    taken = [number(found, "actions_taken") for found in ended]
    return {
        f"reach: targets reached, share of {episodes} episodes": share(ended),
        "reach: actions to a target": statistics.mean(taken),
        "reach: actions a second, one episode": statistics.median(number(f, "actions_taken") / s for s, f in alone),
        f"reach: actions a second, {TOGETHER} episodes at once": sum(taken) / seconds,
        **_chunks(client, one(0), rounds),
    }


def _chunks(client: Client, ended: Mapping[str, Any], rounds: int) -> dict[str, Any]:
    """Requests with a picture of 64 by 64, as a robot sends them."""
    picture = client.run(
        "reach", "episode", {"inputs": {"instruction": "go to red"}, "params": {"seed": FIRST, "looks": 1, "side": 64}}
    )["outputs"]["film"][0]
    request = {"inputs": {"camera": picture, "instruction": "go to red", "state": [1.0, 1.5]}}
    client.run("reach", "act", request)
    seconds = [timed(lambda: client.run("reach", "act", request))[0] for _ in range(rounds)]
    return {
        "reach: a picture to 8 actions, ms": 1e3 * statistics.median(seconds),
        "reach: pictures of an episode": len(ended["outputs"]["film"]),
    }


def world(client: Client, episodes: int, rounds: int) -> dict[str, Any]:
    def imagined(seed: int) -> Mapping[str, Any]:
        return client.run("world", "imagine", {"params": {"seed": FIRST + seed, "drive": "wander"}})

    def planned(seed: int) -> Mapping[str, Any]:
        return client.run("world", "plan", {"params": {"seed": FIRST + seed}})

    imagined(rounds)
    films = [timed(lambda seed=seed: imagined(seed)) for seed in range(rounds)]
    with ThreadPoolExecutor(TOGETHER) as pool:
        ended = list(pool.map(planned, range(episodes)))
    return {
        "world: frames a second, one film": statistics.median(len(f["outputs"]["film"]) / s for s, f in films),
        f"world: goals reached, share of {episodes} plans": share(ended),
        "world: a plan and its moves, s": timed(lambda: planned(episodes))[0],
    }


MEASURES: Mapping[str, Callable[[Client, int, int], dict[str, Any]]] = {"reach": reach, "world": world}


def timed(work: Callable[[], Mapping[str, Any]]) -> tuple[float, Mapping[str, Any]]:
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def number(found: Mapping[str, Any], name: str) -> float:
    """The last value of an output."""
    return float(found["outputs"][name][-1]["value"])


def share(ended: list[Mapping[str, Any]]) -> float:
    return sum(bool(number(found, "reached")) for found in ended) / len(ended)


if __name__ == "__main__":
    main()
