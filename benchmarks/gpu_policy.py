"""Measures pi0.5's action expert on one GPU: ten Euler steps of 50 actions per robot, behind a prefix of 968 tokens.

    python benchmarks/gpu_policy.py --out policy.json [--sweep 150] [--robots 1 2 4 8]

It uses a stack of the layers' functions at the expert's full size, with random weights. First every kernel is compared
with its plain form in float32, and the captured loop with the uncaptured one and with float32. The next tables have the
time of the loop for several numbers of robots, with five launches a layer, and where it goes: a step without a part,
each kernel's own time, and the same loop with the plain forms; and one robot's loop with all layers in one launch. With
`--sweep SECONDS`, every product and the attention are split in many ways, compiled in a pool of processes, checked, and
timed in a captured chain through all layers' weights, which don't fit into L2 together. Then the best splits are
compared in whole steps, because overlapping launches speed up or slow down their neighbours. The script prints the
values for `modulated_config` and `narrow_attention`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common
import _policy as policy
from _policy import CASES, LAYERS, PREFIX, STEPS, TOKENS, Alone, Expert, microseconds

from walkgraph.layers.kernels.gpu import present
from walkgraph.layers.kernels.linear import workspace
from walkgraph.layers.kernels.linear_norm import norm_rows
from walkgraph.layers.kernels.modulated_config import Cut, choose
from walkgraph.layers.kernels.narrow_attention import Tuning, narrow_attention, tuning

ERROR = 1e-2
WORKS = "works"
KINDS: tuple[Callable[[Any], bool], ...] = (
    lambda cut: getattr(cut, "early", False),
    lambda cut: not getattr(cut, "early", False) and not getattr(cut, "library", False),
    lambda cut: getattr(cut, "library", False),
)
"""Kinds of splits; the fastest of each kind, timed alone, is tried in whole steps."""
Task = tuple[str, int, Cut | Tuning]
Ranked = list[tuple[float, Any]]


def main() -> None:
    given = options()
    torch.manual_seed(0)
    report: dict[str, Any] = {}
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(given.workers, mp_context=context) if given.sweep else None
    joined = context.Process(target=check_joined, args=(given.robots,), daemon=True)
    joined.start()
    for name, section in (
        ("present", lambda: prepared(given.robots, pool) if pool else []),
        ("checks", lambda: checks(given.robots)),
        ("overlaps", overlaps),
        ("loops", lambda: loops(given.robots)),
        ("one launch", one_launch),
        ("kernels", lambda: by_kernel(given.robots)),
        ("joined", lambda: waited(joined)),
        ("sweep", lambda: swept(given, pool, report["joined"] == WORKS) if pool else []),
        ("after", lambda: loops(given.robots) + loop_checks(given.robots) if pool else []),
        ("kernels after", lambda: by_kernel(given.robots) if pool else []),
    ):
        begun = time.monotonic()
        try:
            report[name] = section()
        except Exception as error:  # noqa: BLE001 - what else is measured is worth having
            report[name] = f"{type(error).__name__}: {error}"[:2000]
            print(name, report[name], flush=True)
        if report[name]:
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
        common.write(given.out, "cuda", report)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--robots", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument(
        "--sweep", type=float, default=0, help="seconds after which no further split is tried; 0 turns the sweep off"
    )
    parser.add_argument("--workers", type=int, default=14, help="number of compiling processes")
    return parser.parse_args()


# Checks


def checks(robots: Sequence[int]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for count in robots:
        row: dict[str, Any] = {"robots": count}
        for name, case in CASES.items():
            cut, alone = choose(count * TOKENS, case), Alone(name, count)
            weight = policy.drawn(torch.Generator("cuda").manual_seed(2), *case[:2], scale=case[1] ** -0.5)
            row[name] = alone.wrong(cut, weight) if cut else "no cut"
        tuned = tuning(count, TOKENS, policy.HEADS, policy.DIM, present())
        row["attend"] = attention_error(count, tuned)
        rows.append(row)
    common.show("relative error to float32", rows)
    return [*rows, *loop_checks(robots)]


@cache
def heads(robots: int) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values, bounds, and what float32 gives."""
    generator = torch.Generator("cuda").manual_seed(3)
    length = PREFIX + TOKENS
    q = policy.drawn(generator, robots * TOKENS, policy.HEADS, policy.DIM)
    k, v = (policy.drawn(generator, robots * length, policy.GROUPS, policy.DIM) for _ in range(2))
    spans = [[i * length, (i + 1) * length] for i in range(robots)]
    mine = (x.float().unflatten(0, (robots, -1)).transpose(1, 2) for x in (q, k, v))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wanted = F.scaled_dot_product_attention(*mine, enable_gqa=True).transpose(1, 2).flatten(0, 1)
    return q, k, v, torch.tensor(spans, dtype=torch.int32, device="cuda"), wanted


def attention_error(robots: int, tuned: Tuning) -> float:
    """Infinite where two launches differ."""
    *given, wanted = heads(robots)
    found, again = (narrow_attention(*given, tuned) for _ in range(2))
    same = torch.equal(found, again)
    return float((found.float() - wanted).norm() / wanted.norm()) if same else float("inf")


def check_joined(robots: Sequence[int]) -> None:
    """Runs in a process of its own: programs that wait for each other in vain end with it."""
    for count in robots:
        tuned = replace(tuning(count, TOKENS, policy.HEADS, policy.DIM, present()), joined=True)
        wrong = attention_error(count, tuned)
        print(f"joined, {count} robots: relative error {wrong:.2g}", flush=True)
        if not wrong < ERROR:
            raise SystemExit(1)


def waited(process: Any) -> str:
    process.join(45)
    alive = process.is_alive()
    process.kill()
    return WORKS if not alive and process.exitcode == 0 else f"alive {alive}, exit code {process.exitcode}"


def loop_checks(robots: Sequence[int]) -> list[dict[str, Any]]:
    """Actions after ten steps: kernels and plain bfloat16 against float32; eager and replayed twice bit by bit."""
    rows: list[dict[str, Any]] = []
    for count in (robots[0], robots[-1]):
        expert = Expert(count)
        with torch.no_grad():
            eager = expert.loop()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                captured = expert.loop()
        same: list[bool] = []
        for _ in range(2):
            graph.replay()
            torch.cuda.synchronize()
            same.append(torch.equal(captured, eager))
        graph.reset()
        with policy.plainly():
            plain, exact = expert.loop(), Expert(count, dtype=torch.float32).loop()
        moved = (exact - expert.noise).norm()
        rows.append(
            {
                "robots": count,
                "captured is eager": all(same),
                "kernels' error": float((eager - exact).norm() / moved),
                "plain bfloat16's": float((plain - exact).norm() / moved),
            }
        )
        torch.cuda.empty_cache()
    common.show("the loop's actions, relative to how far they move", rows)
    return rows


# Times


def loops(robots: Sequence[int]) -> list[dict[str, Any]]:
    """Milliseconds of ten steps, microseconds of a layer, and what a layer gains where a part is left out."""
    rows: list[dict[str, Any]] = []
    for count in robots:
        expert = Expert(count)
        whole = microseconds(expert.loop)
        step = microseconds(partial(expert.velocity, expert.noise, 0))
        row: dict[str, Any] = {"robots": count, "loop ms": whole / 1e3, "layer us": whole / STEPS / LAYERS}
        row["layer floor us"] = policy.LAYER_BYTES / common.COPY * 1e6
        for part in ("place", "attend", "out", "gated", "down"):
            less = microseconds(partial(expert.velocity, expert.noise, 0, frozenset([part])))
            row[f"{part} us"] = (step - less) / LAYERS
        row["else, of a step"] = microseconds(partial(expert.velocity, expert.noise, 0, frozenset(_PARTS)))
        if count in (robots[0], robots[-1]):
            row["plain loop ms"] = microseconds(partial(plain_loop, expert)) / 1e3
        rows.append(row)
        del expert
        torch.cuda.empty_cache()
    common.show("loops", rows)
    return rows


def one_launch() -> list[dict[str, Any]]:
    """One robot's loop with all layers in one launch, beside the loop of five launches a layer."""
    expert, exact = Expert(1), Expert(1, dtype=torch.float32)
    stack = expert.stack()
    with torch.no_grad():
        apart, eager, exactly = expert.loop(), expert.stacked_loop(stack), exact.loop()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = expert.stacked_loop(stack)
        same: list[bool] = []
        for _ in range(20):
            graph.replay()
            torch.cuda.synchronize()
            same.append(torch.equal(captured, eager))
        graph.reset()
        moved = (exactly - expert.noise).norm()
        launch = microseconds(partial(expert.stacked, stack, expert.noise, 0), replays=21)
        whole = microseconds(partial(expert.stacked_loop, stack), replays=21)
    row = {
        "loop ms": whole / 1e3,
        "of launches by part, ms": microseconds(expert.loop, replays=21) / 1e3,
        "launch us": launch,
        "layer us": launch / LAYERS,
        "else, of a step": whole / STEPS - launch,
        "captured is eager": all(same),
        "error": float((eager - exactly).norm() / moved),
        "error by part": float((apart - exactly).norm() / moved),
    }
    common.show("one robot, all layers in one launch", [row])
    return [row]


_PARTS = ("place", "attend", "out", "gated", "down")


def plain_loop(expert: Expert) -> Tensor:
    """Torch's operations, but for the attention."""
    with policy.plainly():
        return expert.loop()


def by_kernel(robots: Sequence[int]) -> list[dict[str, Any]]:
    """A replayed step's kernels: launches that overlap count their waiting too."""
    from torch.profiler import ProfilerActivity, profile

    rows: list[dict[str, Any]] = []
    for count in (robots[0], robots[-1]):
        expert = Expert(count)
        with torch.no_grad():
            expert.velocity(expert.noise, 0)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                expert.velocity(expert.noise, 0)
        graph.replay()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as trace:
            graph.replay()
            torch.cuda.synchronize()
        for one in trace.key_averages():
            us = one.self_device_time_total
            if us:
                each = us / one.count
                rows.append({"robots": count, "us": us, "calls": one.count, "each": each, "kernel": one.key[:60]})
        graph.reset()
    rows.sort(key=lambda row: (row["robots"], -row["us"]))
    common.show("kernels of a step", rows)
    return rows


def overlaps() -> list[dict[str, Any]]:
    """Microseconds of a launch that does next to nothing, in a chain."""
    x, weight = torch.randn(TOKENS, policy.WIDTH, device="cuda").bfloat16(), torch.ones(policy.WIDTH, device="cuda")
    out = torch.empty_like(x)

    def chain(pdl: int) -> None:
        for _ in range(90):
            norm_rows(x, weight, 1e-6, out, pdl)

    rows = [{"overlap": pdl, "us": microseconds(partial(chain, pdl)) / 90} for pdl in (0, 1, 2)]
    common.show("a launch of fifty programs", rows)
    return rows


# Sweeps


@cache
def alone_of(name: str, robots: int) -> tuple[Alone, Tensor]:
    case = CASES[name]
    return Alone(name, robots), policy.drawn(torch.Generator("cuda").manual_seed(2), *case[:2], scale=case[1] ** -0.5)


def tried(task: Task) -> str:
    """Compiles into Triton's cache and checks, in a process of the pool; what is wrong with it."""
    name, robots, cut = task
    try:
        with torch.no_grad():
            if isinstance(cut, Tuning):
                wrong = attention_error(robots, cut)
            else:
                alone, weight = alone_of(name, robots)
                wrong = alone.wrong(cut, weight)
                if not wrong < ERROR:
                    workspace(weight.device)[1].zero_()
        return "" if wrong < ERROR else f"relative error {wrong}"
    except Exception as error:  # noqa: BLE001 - what can't run is no candidate, whatever the reason
        return f"{type(error).__name__}: {error}"[:200]


class Sweep:
    def __init__(self, seconds: float, workers: int, pool: ProcessPoolExecutor) -> None:
        self.end, self.seconds = time.monotonic() + seconds, seconds
        self.workers, self.pool = workers, pool
        self.weights = {
            name: [policy.drawn(torch.Generator("cuda").manual_seed(i), *case[:2]) for i in range(LAYERS)]
            for name, case in CASES.items()
        }
        self.failures: dict[str, str] = {}

    def left(self, share: float = 0.0) -> bool:
        """True if more than this share of the time is left."""
        return time.monotonic() < self.end - share * self.seconds

    def compiled(self, tasks: Sequence[Task], reserve: float) -> list[Task]:
        """Those that are right, as far as the time goes."""
        order = list(dict.fromkeys(tasks))
        random.Random(0).shuffle(order)
        good, begun, done = list[Task](), time.monotonic(), 0
        size = 4 * self.workers
        while done < len(order) and self.left(reserve):
            part = order[done : done + size]
            for task, message in zip(part, self.pool.map(tried, part), strict=True):
                if message:
                    self.failures[str(task)] = message
                else:
                    good.append(task)
            done += len(part)
        print(f"compiled {done} of {len(order)} in {time.monotonic() - begun:.0f} s, {len(good)} right", flush=True)
        return good

    def timed(self, task: Task) -> float:
        """Microseconds of one launch, in a chain through the layers."""
        name, robots, cut = task
        if isinstance(cut, Tuning):
            given = heads(robots)[:4]
            return microseconds(lambda: [narrow_attention(*given, cut) for _ in range(LAYERS)]) / LAYERS
        alone, _ = alone_of(name, robots)
        to = alone.places()
        return microseconds(lambda: [alone.run(cut, weight, to) for weight in self.weights[name]]) / LAYERS

    def ranked(self, tasks: Sequence[Task]) -> dict[tuple[str, int], Ranked]:
        found: dict[tuple[str, int], Ranked] = {}
        for task in tasks:
            if not self.left(0.1):
                print("no time for all", flush=True)
                break
            try:
                found.setdefault(task[:2], []).append((self.timed(task), task[2]))
            except Exception as error:  # noqa: BLE001 - the next one may run
                self.failures[str(task)] = str(error)[:200]
        return {key: sorted(ranks, key=lambda one: one[0]) for key, ranks in found.items()}


def prepared(robots: Sequence[int], pool: ProcessPoolExecutor) -> list[str]:
    """Compiles the current kernels in all processes together."""
    tasks: list[Task] = []
    for count in robots:
        tuned = tuning(count, TOKENS, policy.HEADS, policy.DIM, present())
        tasks.append(("attend", count, tuned))
        cuts = ((name, choose(count * TOKENS, case)) for name, case in CASES.items())
        tasks += [(name, count, cut) for name, cut in cuts if cut is not None]
    wrong = [f"{task}: {message}" for task, message in zip(tasks, pool.map(tried, tasks), strict=True) if message]
    print(f"{len(tasks)} compiled", *wrong, sep="\n", flush=True)
    return wrong


def swept(given: argparse.Namespace, pool: ProcessPoolExecutor, joined: bool) -> dict[str, Any]:
    robots, sweep = given.robots, Sweep(given.sweep, given.workers, pool)
    tasks: list[Task] = [
        (name, count, cut) for count in robots for name in CASES for cut in policy.candidates(name, count * TOKENS)
    ]
    tasks += [
        ("attend", count, tuned)
        for count in robots
        for tuned in policy.attentions(count, present().processors)
        if joined or not tuned.joined
    ]
    found = sweep.ranked(sweep.compiled(tasks, 0.55))
    sweep.pool.shutdown(wait=False, cancel_futures=True)
    for (name, count), ranks in sorted(found.items()):
        torch_us = library(sweep, name, count)
        print(f"{name} {count}: torch's product {torch_us:.2f} us" if torch_us else f"{name} {count}", flush=True)
        for us, cut in ranks[:4]:
            print(f"    {us:7.2f} {written(cut)}", flush=True)
    chosen = {count: descended(sweep, count, found) for count in robots if sweep.left(0.02)}
    for count, (us, choice) in chosen.items():
        print(f"{count} robots: {us / LAYERS:.2f} us a layer")
        print(*(f"    {name:8}{written(cut)}" for name, cut in choice.items()), sep="\n", flush=True)
    print(f"{len(sweep.failures)} failures", *list(sweep.failures.items())[:8], sep="\n", flush=True)
    return {
        "alone": {f"{n} {r}": [[us, asdict(cut)] for us, cut in ranks[:12]] for (n, r), ranks in found.items()},
        "chosen": {count: {n: asdict(cut) for n, cut in choice.items()} for count, (_, choice) in chosen.items()},
        "failures": sweep.failures,
    }


def library(sweep: Sweep, name: str, robots: int) -> float:
    """The product alone by torch, nothing before or after it."""
    if name == "attend":
        return 0.0
    x = alone_of(name, robots)[0].read()
    return microseconds(lambda: [F.linear(x, weight) for weight in sweep.weights[name]]) / LAYERS


def descended(sweep: Sweep, robots: int, found: dict[tuple[str, int], Ranked]) -> tuple[float, dict[str, Any]]:
    """One part after the other takes what makes a whole step fastest -> microseconds of it."""
    expert, rows = Expert(robots), robots * TOKENS
    choice: dict[str, Any] = {name: choose(rows, case) for name, case in CASES.items()}
    choice["attend"] = tuning(robots, TOKENS, policy.HEADS, policy.DIM, present())

    def step(taken: dict[str, Any]) -> float:
        for name, cut in taken.items():
            if name == "attend":
                expert.tuned = cut
            else:
                policy.use(name, rows, cut)
        return microseconds(partial(expert.velocity, expert.noise, 0), 3)

    best = step(choice)
    begins = {name: found[name, robots][0][1] for name in choice if found.get((name, robots))}
    best, choice = min((best, choice), (step(choice | begins), choice | begins), key=lambda one: one[0])
    for name in ("attend", *CASES):
        ranks = found.get((name, robots), [])
        kinds = [next((c for _, c in ranks if kind(c)), None) for kind in KINDS]
        others = list(dict.fromkeys([*(cut for _, cut in ranks[:4]), *(cut for cut in kinds if cut)]))
        for other in [*others, *(v for cut in [choice[name], *others[:1]] for v in variants(cut))]:
            if not sweep.left():
                break
            try:
                taken = step(choice | {name: other})
            except Exception as error:  # noqa: BLE001 - the next one may run
                sweep.failures[str((name, robots, other))] = str(error)[:200]
                continue
            if taken < best * 0.998:
                best, choice = taken, choice | {name: other}
    step(choice)
    policy.ATTENTION[robots] = choice["attend"]
    return best, choice


def variants(cut: Cut | Tuning) -> list[Cut | Tuning]:
    """Variants of a split that overlap with the previous and the next launch in other ways."""
    if isinstance(cut, Tuning):
        return [replace(cut, overlap=0), replace(cut, overlap=2)]
    if cut.library:
        return [replace(cut, overlap=0), replace(cut, overlap=2)]
    ahead = cut.ahead or 256
    return [replace(cut, overlap=0), replace(cut, overlap=2, ahead=ahead), replace(cut, ahead=0 if cut.ahead else 256)]


def written(cut: Cut | Tuning) -> str:
    """Writes it as Python does, defaults left out."""
    plain = type(cut)()
    named = {name: value for name, value in asdict(cut).items() if value != getattr(plain, name)}
    return f"{type(cut).__name__}({', '.join(f'{name}={value}' for name, value in named.items())})"


if __name__ == "__main__":
    main()
