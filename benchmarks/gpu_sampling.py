"""Sampling on a GPU: the kernels against their torch twin, then microseconds in captured graphs.

    PYTHONPATH=backend python benchmarks/gpu_sampling.py --out sampling.json

Exits with 1 if a check fails. The figures are for a whole `sample`, averaged over the positions of a graph, so that
rejected candidates count as often as they occur.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walkgraph.layers import sampling
from walkgraph.layers.kernels import sampling as kernels
from walkgraph.layers.sampling_params import SamplingParams

V = 156_940
SHORT = 2048
"""A codebook's codes, which one launch samples from."""
ROWS = (1, 8, 16, 32, 64)
NEAR = 2e-5
"""Scores this near to a threshold may fall on either side of it: sums differ in their last bits."""
MODES: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0},
    "T": {},
    "T+top-p": {"top_p": 0.9},
    "T+top-p+rep": {"top_p": 0.9, "repetition": 1.1},
    "T+top-k+top-p": {"top_k": 50, "top_p": 0.9},
}
CHECKED = MODES | {
    "T+top-p+rep": {"top_p": 0.9, "repetition": 1.1, "presence": 0.0, "frequency": 0.0},
    "low top-p": {"top_p": 0.1},
    "top-p 0": {"top_p": 0.0},
    "top-k": {"top_k": 40},
    "top-k 1": {"top_k": 1},
    "min-p": {"min_p": 0.05},
    "all": {
        "top_k": 5000, "top_p": 0.8, "min_p": 0.01, "temperature": 0.6,
        "repetition": 1.3, "presence": 0.5, "frequency": 0.2,
    },
}  # fmt: skip


OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Filters that are there and do nothing: one set of kernels for all checks, and rows of all sorts in one batch."""


def params(rows: int, position: int, **how: float) -> SamplingParams:
    def all_of(value: float, kind: torch.dtype = torch.float32) -> Tensor:
        return torch.full((rows,), value, dtype=kind, device="cuda")

    each = torch.arange(rows, device="cuda")
    filters = {k: all_of(v, torch.int64 if k == "top_k" else torch.float32) for k, v in how.items()}
    temperature = filters.pop("temperature", all_of(0.8))
    return SamplingParams(each * 1_000_003 + 17, each + position, temperature, **filters)


def row_of(p: SamplingParams, i: int) -> SamplingParams:
    return SamplingParams(*(None if each is None else each[i : i + 1] for each in p))  # pyright: ignore[reportArgumentType]


def kinds(rows: int) -> dict[str, Tensor]:
    """Logits by kind, `[rows, V]`."""
    dice = torch.Generator("cuda").manual_seed(1)
    x = torch.randn(rows, V, generator=dice, device="cuda")
    masked = torch.where(torch.rand(rows, V, generator=dice, device="cuda") < 0.9999, -torch.inf, x)
    masked[:, 7] = 0
    lonely = torch.full_like(x, -60.0)
    lonely[:, 77_777] = 30
    ramp = (torch.arange(V, device="cuda") * -1e-3).expand(rows, V).contiguous()
    return {
        "peaked": (x * 6).bfloat16(),
        "flat": (x * 0.3).bfloat16(),
        "nearly equal": x * 1e-3,
        "tied": (x * 2).round().bfloat16(),
        "all equal": torch.ones_like(x).bfloat16(),
        "masked": masked.bfloat16(),
        "lonely": lonely.bfloat16(),
        "ramp": ramp,
    }


def table(rows: int) -> Tensor:
    counts = torch.zeros(rows + 1, V, dtype=torch.int16, device="cuda")
    for row in range(rows):
        sampling.count_prompt(counts, row, torch.randint(V, (2000,), device="cuda"))
    for _ in range(20):
        sampling.count(counts, torch.arange(rows, device="cuda"), torch.randint(V, (rows,), device="cuda"))
    return counts


def allowed(x: Tensor, p: SamplingParams, tokens: Tensor) -> Tensor:
    """bool `[R]`: the token is kept, or within NEAR of the least score that is."""
    least = x.masked_fill(~sampling.kept(x, p), torch.inf).amin(-1)
    hot = p.temperature > 0
    return ~hot | (x.gather(1, tokens.clamp(min=0)[:, None])[:, 0] >= least - NEAR)


def check_tokens(rows: int, rounds: int) -> dict[str, Any]:
    counts, at = table(rows), torch.arange(rows, device="cuda", dtype=torch.int32).flip(0)
    equal = total = outside = 0
    worst: dict[str, float] = {}
    for kind, logits in kinds(rows).items():
        for mode, how in CHECKED.items():
            if logits.dtype != torch.bfloat16 and how.get("repetition"):
                continue
            same = 0
            for position in range(rounds):
                p = params(rows, 1000 * position, **(OFF | how))
                tokens = sampling.sample(logits, p, counts, at)
                same += int((tokens == sampling.sample_plainly(logits, p, counts, at)).sum())
                if position == 0:
                    outside += int((~allowed(sampling.scores(logits, p, counts, at), p, tokens)).sum())
            equal, total = equal + same, total + rounds * rows
            if same < rounds * rows:
                worst[f"{kind}, {mode}"] = same / (rounds * rows)
    return {"rows": total, "equal": equal / total, "outside": outside, "not all equal": worst,
            "ok": equal / total >= 0.999 and outside == 0}  # fmt: skip


def check_frequencies(draws: int = 20_000) -> dict[str, Any]:
    """Draws over twelve tokens against the probabilities; 31.3 is one in a thousand for eleven degrees of freedom."""
    x = torch.randn(1, 12, generator=torch.Generator().manual_seed(0)).cuda()
    counts = torch.zeros(1, 12, dtype=torch.int16, device="cuda")
    at = torch.zeros(draws, dtype=torch.int32, device="cuda")
    found: dict[str, Any] = {}
    for name, how in {"plain": {}, "top-p": {"top_p": 0.8}, "top-k": {"top_k": 5}, "min-p": {"min_p": 0.1}}.items():
        p = params(draws, 0, **(OFF | how))
        tokens = sampling.sample(x.expand(draws, -1), p, counts, at)
        one = row_of(p, 0)
        scores = sampling.scores(x, one)
        wanted = scores.masked_fill(~sampling.kept(scores, one), -torch.inf).double().softmax(-1)[0] * draws
        got = torch.bincount(tokens, minlength=12)
        square = ((got - wanted).square() / wanted)[wanted > 0].sum()
        found[name] = {"chi_square": float(square), "ok": bool(square < 31.3) and int(got[wanted == 0].sum()) == 0}
    return {**found, "ok": all(one["ok"] for one in found.values())}


def check_batches() -> dict[str, Any]:
    """A row alone, in a batch, and in a graph; rows that are sick; log-probabilities."""
    rows = 64
    logits = kinds(rows)["flat"]
    p = params(rows, 5, **(OFF | {"top_p": 0.5, "top_k": 100_000}))
    counts, at = table(1), torch.zeros(rows, dtype=torch.int32, device="cuda")
    together = sampling.sample(logits, p, counts, at)
    alone = [sampling.sample(logits[i : i + 1], row_of(p, i), counts, at[:1]) for i in range(rows)]
    graph, out = captured(lambda: sampling.sample(logits, p, counts, at))
    again = True
    for _ in range(20):
        graph.replay()
        again &= torch.equal(out, together)
    sick = logits.clone()
    sick[3, 99], sick[4], sick[5, V - 1] = torch.nan, -torch.inf, torch.inf
    drawn = sampling.sample(sick, p, counts, at)
    healthy = torch.tensor([i not in (3, 4, 5) for i in range(rows)], device="cuda")
    ids, logprobs, chosen, rank = sampling.top_logprobs(logits, together, 5)
    wanted = logits.float().log_softmax(-1)
    mine = wanted.gather(1, together[:, None])
    found = {
        "alone": torch.equal(torch.cat(alone), together),
        "captured": again,
        "sick": bool((drawn[3:6] == -1).all()) and torch.equal(drawn[healthy], together[healthy]),
        "logprobs": bool(((logprobs - wanted.gather(1, ids)).abs() < 1e-4).all()),
        "chosen": bool(((chosen - mine[:, 0]).abs() < 1e-4).all()),
        "rank": torch.equal(rank, 1 + (logits > logits.gather(1, together[:, None])).sum(-1)),
    }
    return {**found, "ok": all(found.values())}


def captured(work: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = work()
    return graph, out


def microseconds(works: list[Callable[[], Any]], repeats: int = 7) -> float:
    """The time of one of `works`, which are captured one after the other."""
    graph, _ = captured(lambda: [work() for work in works])
    times: list[float] = []
    for _ in range(repeats + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(5):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / 5 / len(works))
    return statistics.median(times[1:])


def timings(positions: int = 40) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for rows in ROWS:
        logits, counts = (torch.randn(rows, V, device="cuda") * 0.3).bfloat16(), table(rows)
        at = torch.arange(rows, device="cuda", dtype=torch.int32)
        for mode, how in MODES.items():
            for pdl in (True, False) if mode in ("T", "T+top-p") else (True,):
                each = [params(rows, 997 * i, **how) for i in range(positions)]
                works = [lambda p=p, pdl=pdl: kernels.sample(logits, p, counts, at, pdl=pdl) for p in each]  # noqa: B023
                found.setdefault(mode if pdl else f"{mode}, no PDL", {})[rows] = microseconds(works)
        codes = torch.randn(rows, SHORT, device="cuda").bfloat16()
        each = [params(rows, 997 * i, top_k=50, top_p=0.8) for i in range(positions)]
        works = [lambda p=p: kernels.sample(codes, p) for p in each]  # noqa: B023
        found.setdefault(f"T+top-k+top-p of {SHORT}", {})[rows] = microseconds(works)
        tokens = torch.zeros(rows, dtype=torch.int64, device="cuda")
        others = {
            "count": lambda: sampling.count(counts, at, tokens),  # noqa: B023
            "logprobs, k 5": lambda: sampling.top_logprobs(logits, tokens, 5),  # noqa: B023
            "torch argmax": lambda: logits.argmax(-1),  # noqa: B023
        }
        for name, work in others.items():
            found.setdefault(name, {})[rows] = microseconds([work] * 10)
    return found


PENALTIES = {"repetition": 1.1, "presence": 0.1, "frequency": 0.1}
JOBS: list[tuple[int, torch.dtype, dict[str, float], bool]] = [
    (V, torch.bfloat16, OFF, True),
    (V, torch.bfloat16, OFF | PENALTIES, True),
    (V, torch.float32, OFF, True),
    (12, torch.float32, OFF, True),
    (SHORT, torch.bfloat16, {"top_k": 50, "top_p": 0.8}, True),
    *[(V, torch.bfloat16, how, True) for how in MODES.values()],
    *[(V, torch.bfloat16, MODES[mode], False) for mode in ("T", "T+top-p")],
]
"""The kernels that the checks and timings compile."""


def warm(job: tuple[int, torch.dtype, dict[str, float], bool]) -> None:
    """Compile a job's kernels into Triton's cache on disk."""
    vocab, kind, how, pdl = job
    counts = torch.zeros(17, vocab, dtype=torch.int16, device="cuda")
    for rows in (1, 16):
        at = torch.zeros(rows, dtype=torch.int32, device="cuda")
        logits = torch.zeros(rows, vocab, dtype=kind, device="cuda")
        kernels.sample(logits, params(rows, 0, **how), counts, at, pdl=pdl)
    torch.cuda.synchronize()


def warm_all() -> None:
    with ProcessPoolExecutor(len(JOBS), mp_context=get_context("spawn")) as pool:
        list(pool.map(warm, JOBS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=4, help="batches of 64 for each kind of logits and mode")
    given = parser.parse_args()
    warm_all()
    checks = {
        "frequencies": check_frequencies(),
        "batches": check_batches(),
        "tokens": check_tokens(64, given.rounds),
    }
    print(json.dumps(checks, indent=1))
    times = timings()
    ok = all(one["ok"] for one in checks.values())
    if given.out:
        device = torch.cuda.get_device_name()
        given.out.write_text(json.dumps({"device": device, "ok": ok, "checks": checks, "us": times}, indent=1))
    print(f"checks {'pass' if ok else 'FAIL'}; microseconds of one sample, V {V}, bf16\n")
    print(f"{'rows':>24} " + " ".join(f"{rows:>7}" for rows in ROWS))
    for mode, by_rows in times.items():
        print(f"{mode:>24} " + " ".join(f"{by_rows[rows]:7.1f}" for rows in ROWS))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
