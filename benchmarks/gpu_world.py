"""Measures a step of V-JEPA 2-AC's predictor and encoder on one GPU, with full-size layers as one CUDA graph, and finds
the fastest splits of their attention.

    python benchmarks/gpu_world.py [--parts check sweep stacks library] [--rollouts 1 8 400]
        [--seconds 200] [--out world.json]

`check`: placing and attending blocks, and norms, compared with float32. `sweep`: splits of the predictor's attention.
`library`: its products, and those of SigLIP and of Gemma's prefix, in graphs that rotate through the weights of many
layers. `stacks`: 24 layers behind contexts of several lengths, for 1, 8 and 400 rollouts, and 40 layers of the encoder;
then by kernel. After a `sweep`, `stacks` use the best splits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common
from _world import HEADS, PAGE, ROLLOUTS, TOKENS, WIDTH, Room, attempt, normal, per_call, stacks, wrong

from walkgraph.layers.linear.product import Activation


class Shape(NamedTuple):
    """A product: rows, N, K, and what stands after it."""

    of: str
    rows: int
    n: int
    k: int
    activation: Activation | None = None
    residual: bool = False
    bias: bool = True


def shapes_of(of: str, rows: int, width: int, hidden: int, activation: Activation = "gelu") -> list[Shape]:
    return [
        Shape(of, rows, 3 * width, width),
        Shape(of, rows, width, width, residual=True),
        Shape(of, rows, hidden, width, activation=activation),
        Shape(of, rows, width, hidden, residual=True),
    ]


SHAPES = [
    *shapes_of("predictor", TOKENS, 1024, 4096),
    *shapes_of("predictor, patches", 256, 1024, 4096),
    *shapes_of("encoder", 256, 1408, 6144),
    *shapes_of("siglip", 768, 1152, 4304, "gelu_tanh"),
    *shapes_of("predictor", 8 * TOKENS, 1024, 4096),
    *shapes_of("predictor", ROLLOUTS * TOKENS, 1024, 4096),
    *shapes_of("siglip", 256, 1152, 4304, "gelu_tanh"),
    Shape("prefix", 968, 2560, 2048, bias=False),
    Shape("prefix", 968, 2048, 2048, bias=False, residual=True),
    Shape("prefix", 968, 2048, 16384, bias=False, residual=True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["check", "sweep", "stacks", "library"])
    parser.add_argument(
        "--rollouts", nargs="+", type=int, default=[1, 8, ROLLOUTS], help="rollouts in sweeps and stacks"
    )
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    budget, report = common.Budget(given.seconds), {}
    with torch.inference_mode():
        if "sweep" in given.parts:
            with Compilers(given.workers) as compilers:
                attention = Attentions(compilers, common.Budget(0.8 * given.seconds), given.rollouts)
                if "check" in given.parts:
                    report["check"] = attempt(checks)
                report["attention"] = attempt(attention.run)
                budget.left_out += attention.budget.left_out
        elif "check" in given.parts:
            report["check"] = attempt(checks)
        if "library" in given.parts:
            report["library"] = attempt(lambda: libraries(budget))
        if "stacks" in given.parts:
            report["stacks"] = attempt(lambda: stacks(budget, given.rollouts))
    report["left out"] = budget.left_out
    common.write(given.out, "cuda", report)


# Checks ---------------------------------------------------------------------------------------------------------------


def checks() -> list[common.Row]:
    rows = [*block_checks()]
    common.show("relative distance to float32 (bfloat16 rounds by 2e-3)", rows)
    return rows


def block_checks() -> Iterator[common.Row]:
    from walkgraph.layers.attention.paged_blocks import plain_attention, plain_place
    from walkgraph.layers.kernels.layer_norm import norm_rows
    from walkgraph.layers.kernels.paged_blocks import CUTS, Cut, attend, choose, place

    for batch, context in ((1, 0), (1, 1000), (3, 7700), (8, 516)):
        room = Room(batch, context, 1)
        k, v = room.k[0].clone(), room.v[0].clone()
        qkv = normal(batch * TOKENS, 3 * HEADS * WIDTH)
        q = place(qkv, room.cos, room.sin, room.k[0], room.v[0], room.rows, TOKENS, PAGE)
        wanted = plain_place(qkv, room.cos, room.sin, k, v, room.rows, TOKENS)
        distance = max(wrong(q, wanted), wrong(room.k[0], k), wrong(room.v[0], v))
        yield {"what": f"placed {batch} x {context}", "wrong by": distance}
        exact = plain_attention(q.float(), k.float(), v.float(), room.rows, TOKENS)
        chosen = choose(batch, HEADS, room.capacity)
        for cut in (chosen, CUTS[max(CUTS)], Cut(m=64, splits=8, least=64), Cut(m=128, splits=4, warps=8)):
            outs = [attend(q, room.k[0], room.v[0], room.rows, TOKENS, PAGE, cut) for _ in range(2)]
            distance = wrong(outs[0], exact) if torch.equal(outs[0], outs[1]) else float("nan")
            yield {"what": f"attention {batch} x {context}", "cut": told(cut), "wrong by": distance}
    room = Room(8, 3612, 1)
    room.rows.lengths.copy_(torch.tensor([3612, 0, 258, 3354, 1, 17, 2064, 3099]))
    q = normal(8 * TOKENS, HEADS, WIDTH)
    exact = plain_attention(q.float(), room.k[0].float(), room.v[0].float(), room.rows, TOKENS)
    for cut in (choose(8, HEADS, room.capacity), CUTS[max(CUTS)], Cut(m=128, splits=4, warps=8, least=128)):
        outs = [attend(q, room.k[0], room.v[0], room.rows, TOKENS, PAGE, cut) for _ in range(20)]
        same = all(torch.equal(one, outs[0]) for one in outs)
        yield {"what": "8 lengths", "cut": told(cut), "wrong by": wrong(outs[0], exact) if same else float("nan")}
    x, weight, bias = normal(258, 1408) * 3 + 1, normal(1408), normal(1408)
    exact = F.layer_norm(x.float(), (1408,), weight.float(), bias.float(), 1e-6)
    yield {"what": "norm", "wrong by": wrong(norm_rows(x, None, weight, bias, 1e-6)[1], exact)}


def told(cut: Any) -> str:
    """The settings of a split that differ from the default."""
    given, ever = asdict(cut), asdict(type(cut)(m=0))
    return " ".join(f"{name}{int(value)}" for name, value in given.items() if value != ever[name])


# Sweeps ---------------------------------------------------------------------------------------------------------------


class Compilers:
    """Processes that fill Triton's cache."""

    def __init__(self, workers: int) -> None:
        self._pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def all(self, cases: Sequence[tuple[int, Any]]) -> list[Future[str | None]]:
        return [self._pool.submit(compiled, *case) for case in cases]


def compiled(context: int, cut: Any) -> str | None:
    """The fault of a split; None if it ran."""
    try:
        with torch.inference_mode():
            attention_work(1, context, 1)(cut)[0]()
            torch.cuda.synchronize()
    except Exception as raised:  # noqa: BLE001 - whatever a compiler raises is a result
        return f"{type(raised).__name__}: {raised}"[:200]
    return None


def libraries(budget: common.Budget) -> list[common.Row]:
    """The library's products, with what it can end them with at once: not always all that is wanted."""
    rows: list[common.Row] = []
    for shape in SHAPES:
        if not budget.allows(f"{shape}"):
            continue
        us = per_call(product_work(shape, 2 if shape.rows > 20000 else 12))
        flops, nbytes = 2 * shape.rows * shape.n * shape.k, 2 * shape.n * shape.k
        told = {"us": us, "TFLOP/s": flops / us / 1e6, "TB/s of weights": nbytes / us / 1e6}
        rows.append({"shape": " ".join(map(str, shape)), **told})
    common.show("products by the library", rows)
    return rows


def product_work(shape: Shape, layers: int) -> list[Callable[[], Any]]:
    """Products by so many layers' weights."""
    x, bias, out = normal(shape.rows, shape.k), normal(shape.n), normal(shape.rows, shape.n)
    weights = [normal(shape.n, shape.k, scale=shape.k**-0.5) for _ in range(layers)]
    return [lambda weight=weight: library(shape, x, weight, bias, out) for weight in weights]


def library(shape: Shape, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    if shape.residual:
        return out.addmm_(x, weight.t())
    if shape.activation is not None:
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
    return F.linear(x, weight, bias if shape.bias else None)


# Attention ------------------------------------------------------------------------------------------------------------


def attention_work(batch: int, context: int, layers: int) -> Callable[[Any], list[Callable[[], Any]]]:
    from walkgraph.layers.kernels.paged_blocks import attend

    room = Room(batch, context, layers, 8192 if batch < 100 else None)
    q = normal(batch * TOKENS, HEADS, WIDTH)

    def one(cut: Any, k: Tensor, v: Tensor) -> Callable[[], Any]:
        return lambda: attend(q, k, v, room.rows, TOKENS, PAGE, cut)

    return lambda cut: [one(cut, k, v) for k, v in zip(room.k, room.v, strict=True)]


CASES = [(1, 0), (1, 1032), (1, 2064), (1, 7740), (8, 0), (8, 2064), (8, 3870), (ROLLOUTS, 0), (ROLLOUTS, 258)]


def attention_cuts(batch: int) -> list[Any]:
    from walkgraph.layers.kernels.paged_blocks import Cut

    tiles = [
        *(Cut(m=64, stages=stages) for stages in (2, 3, 4)),
        *(Cut(m=128, warps=warps, stages=stages) for warps in (4, 8) for stages in (2, 3, 4)),
        *(Cut(m=64, block=128, stages=stages) for stages in (2, 3)),
        *(Cut(m=128, block=128, warps=8, stages=stages) for stages in (2, 3)),
    ]
    if batch >= 100:
        small = [Cut(m=64, block=32, stages=4), Cut(m=128, warps=8, block=32, stages=4)]
        joined = [
            *(Cut(m=64, registers=128, stages=stages) for stages in (2, 3)),
            *(Cut(m=64, registers=registers, stages=2) for registers in (96, 104)),
            *(Cut(m=128, registers=128, warps=8, stages=stages) for stages in (3, 4)),
        ]
        return [*tiles, *small, *(replace(cut, joined=True) for cut in joined)]
    shares = (
        [(1, 256), (2, 256), (4, 256), (8, 256), (4, 512), (8, 512)] if batch == 1 else [(1, 256), (2, 512), (4, 512)]
    )
    return [replace(tile, splits=splits, least=least) for tile in tiles for splits, least in shares]


class Found(NamedTuple):
    case: tuple[int, int]
    times: dict[Any, float]


def dense(batch: int) -> float:
    """Microseconds of torch's attention without a context, where nothing is paged."""
    q, k, v = (normal(batch, TOKENS, HEADS, WIDTH).transpose(1, 2) for _ in range(3))
    return per_call([lambda: F.scaled_dot_product_attention(q, k, v)] * 2)


def alone(cut: Any) -> Any:
    """Contexts, batches and shares have one binary."""
    return replace(cut, splits=1, least=256)


class Attentions:
    def __init__(self, compilers: Compilers, budget: common.Budget, rollouts: Sequence[int]) -> None:
        self.budget, self.cases = budget, [case for case in CASES if case[0] in rollouts]
        cases = list(dict.fromkeys(alone(cut) for batch in rollouts for cut in attention_cuts(batch)))
        self.futures = dict(zip(cases, compilers.all([(300, cut) for cut in cases]), strict=True))

    def run(self) -> list[common.Row]:
        rows: list[common.Row] = []
        found: list[Found] = []
        for batch, context in self.cases:
            if not self.budget.allows(f"attention {batch} {context}"):
                continue
            one, work = Found((batch, context), {}), attention_work(batch, context, 2 if batch > 100 else 6)
            for cut in attention_cuts(batch):
                try:
                    if self.futures[alone(cut)].result(60) is None:
                        one.times[cut] = per_call(work(cut))
                except Exception as raised:  # noqa: BLE001 - a cut that can't be launched is no result
                    print(batch, context, told(cut), f"{type(raised).__name__}: {raised}"[:150], flush=True)
            flops = 4 * batch * TOKENS * (TOKENS + context) * HEADS * WIDTH
            best = [
                {"rollouts": batch, "context": context, "us": us, "TFLOP/s": flops / us / 1e6, "cut": told(cut)}
                for cut, us in sorted(one.times.items(), key=lambda item: item[1])
            ]
            if context == 0:
                print(f"torch's, dense: {attempt(lambda batch=batch: dense(batch))} us", flush=True)
            common.show(f"attention, {batch} rollouts behind {context} tokens", best[:8])
            rows += best
            found.append(one)
        self.use(found)
        return rows

    @staticmethod
    def use(found: list[Found]) -> None:
        """Uses, for every batch, the split that loses least over its contexts."""
        from walkgraph.layers.kernels.paged_blocks import CUTS

        for batch in dict.fromkeys(one.case[0] for one in found):
            of = [one.times for one in found if one.case[0] == batch]
            both = [cut for cut in of[0] if all(cut in times for times in of)]
            lost = {cut: sum(times[cut] / min(times.values()) for times in of) / len(of) for cut in both}
            cut = min(lost, key=lost.__getitem__)
            CUTS[next(most for most in sorted(CUTS) if most >= batch * HEADS)] = cut
            print(f"{batch} rollouts: {cut}, {lost[cut]:.3f} of the best of every context", flush=True)


if __name__ == "__main__":
    main()
