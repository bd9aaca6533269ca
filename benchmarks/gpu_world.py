"""What a step of V-JEPA 2-AC's predictor and of its encoder takes on one GPU, layers of full size as one graph, and
which cuts of their products and of their attention are fastest.

    python benchmarks/gpu_world.py [--parts check sweep stacks library] [--seconds 200] [--out world.json]

`check`: products, blocks placed and attended, and norms, beside float32. `sweep`: cuts of products, and of those that
place what they give, beside the library's product and a launch that places, and of the predictor's attention, in graphs
that rotate through the weights of many layers. `library`: its products, those of SigLIP and of Gemma's prefix too.
`stacks`: 24 layers behind contexts of several lengths, for 1, 8 and 400 rollouts, and 40 layers of the encoder; then by
kernel. With `sweep`, `stacks` run with the cuts that were found best.
"""

from __future__ import annotations

import argparse
import itertools
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

from walkgraph.layers.product import Activation, plain_product


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
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    budget, report = common.Budget(given.seconds), {}
    with torch.inference_mode():
        if "sweep" in given.parts:
            with Compilers(given.workers) as compilers:
                attention = Attentions(compilers, common.Budget(0.8 * given.seconds))
                products = Products(compilers, common.Budget(0.55 * given.seconds))
                if "check" in given.parts:
                    report["check"] = attempt(checks)
                for name, sweep in (("products", products), ("attention", attention)):
                    report[name] = attempt(sweep.run)
                    budget.left_out += sweep.budget.left_out
        elif "check" in given.parts:
            report["check"] = attempt(checks)
        if "library" in given.parts:
            report["library"] = attempt(lambda: libraries(budget))
        if "stacks" in given.parts:
            report["stacks"] = attempt(lambda: stacks(budget))
    report["left out"] = budget.left_out
    common.write(given.out, "cuda", report)


# Checks ---------------------------------------------------------------------------------------------------------------


def checks() -> list[common.Row]:
    rows = [*product_checks(), *block_checks()]
    common.show("relative distance to float32 (bfloat16 rounds by 2e-3)", rows)
    return rows


def product_checks() -> Iterator[common.Row]:
    from walkgraph.layers.kernels.product import Ending, launch
    from walkgraph.layers.kernels.product_config import STAYS, Cut

    cuts = [Cut(64, 128), Cut(64, 128, split=2), Cut(64, 64, swap=True), Cut(128, 128, warps=8, split=3), STAYS]
    for rows, n, k in ((258, 4096, 1024), (258, 1024, 4096), (256, 4304, 1152), (775, 1152, 4304)):
        x, weight, bias, residual = normal(rows, k), normal(n, k, scale=k**-0.5), normal(n), normal(rows, n)
        for cut, activation in itertools.product(cuts, (None, "gelu", "gelu_tanh")):
            end = Ending(bias, activation, residual.clone())
            wanted = plain_product(
                x.float(), weight.float(), bias.float(), activation=activation, residual=residual.float()
            )
            errors = [wrong(launch(cut, x, weight, end._replace(residual=residual.clone())), wanted) for _ in range(2)]
            if not max(errors) < 4e-3 or errors[0] != errors[1] or activation == "gelu":
                yield {"what": f"product {rows} {n} {k} {activation}", "cut": told(cut), "wrong by": max(errors)}


def block_checks() -> Iterator[common.Row]:
    from walkgraph.layers.kernels.layer_norm import norm_rows
    from walkgraph.layers.kernels.paged_blocks import Cut, attend, choose, place
    from walkgraph.layers.paged_blocks import plain_attention, plain_place

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
        for cut in (chosen, Cut(m=64, splits=8, least=64), Cut(m=128, splits=4, warps=8, within=True)):
            outs = [attend(q, room.k[0], room.v[0], room.rows, TOKENS, PAGE, cut) for _ in range(2)]
            distance = wrong(outs[0], exact) if torch.equal(outs[0], outs[1]) else float("nan")
            yield {"what": f"attention {batch} x {context}", "cut": told(cut), "wrong by": distance}
    room = Room(8, 3612, 1)
    room.rows.lengths.copy_(torch.tensor([3612, 0, 258, 3354, 1, 17, 2064, 3099]))
    q = normal(8 * TOKENS, HEADS, WIDTH)
    exact = plain_attention(q.float(), room.k[0].float(), room.v[0].float(), room.rows, TOKENS)
    for cut in (choose(8, HEADS, room.capacity), Cut(m=128, splits=4, warps=8, least=128)):
        outs = [attend(q, room.k[0], room.v[0], room.rows, TOKENS, PAGE, cut) for _ in range(20)]
        same = all(torch.equal(one, outs[0]) for one in outs)
        yield {"what": "8 lengths", "cut": told(cut), "wrong by": wrong(outs[0], exact) if same else float("nan")}
    yield from placed_checks()
    x, weight, bias = normal(258, 1408) * 3 + 1, normal(1408), normal(1408)
    exact = F.layer_norm(x.float(), (1408,), weight.float(), bias.float(), 1e-6)
    yield {"what": "norm", "wrong by": wrong(norm_rows(x, None, weight, bias, 1e-6)[1], exact)}


def placed_checks() -> Iterator[common.Row]:
    from walkgraph.layers.kernels.placed_product import launch
    from walkgraph.layers.kernels.product_config import STAYS, Cut
    from walkgraph.layers.paged_blocks import Places, plain_place

    for batch, cut in itertools.product((1, 8), (STAYS, Cut(64, 128), Cut(128, 64, swap=True, tail=False))):
        room, x = Room(batch, 300, 1), normal(batch * TOKENS, 1024)
        weight, bias, k, v = normal(3072, 1024, scale=1 / 32), normal(3072), room.k[0].clone(), room.v[0].clone()
        q = launch(cut, x, weight, bias, Places(room.cos, room.sin, room.k[0], room.v[0], room.rows, TOKENS))
        exact = plain_place(
            plain_product(x.float(), weight.float(), bias.float()), room.cos, room.sin, k, v, room.rows, TOKENS
        )
        distance = max(wrong(q, exact), wrong(room.k[0], k), wrong(room.v[0], v))
        yield {"what": f"placed product {batch}", "cut": told(cut), "wrong by": distance}


def told(cut: Any) -> str:
    """What of a cut isn't as ever."""
    usual = type(cut)(0, 0) if "swap" in type(cut).__slots__ else type(cut)(m=0)
    given, ever = asdict(cut), asdict(usual)
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

    def all(self, cases: Sequence[tuple[Any, Any]]) -> list[Future[str | None]]:
        return [self._pool.submit(compiled, *case) for case in cases]


def compiled(case: Any, cut: Any) -> str | None:
    """What is wrong with a cut; None where it ran."""
    try:
        with torch.inference_mode():
            if isinstance(case, Placed):
                placed_work(case._replace(batch=min(case.batch, 8)), 1)(cut)[0]()
            elif isinstance(case, Shape):
                product_work(case, 1)(cut)[0]()
            else:
                attention_work(1, case[1], 1)(cut)[0]()
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
        us = per_call(product_work(shape, 2 if shape.rows > 20000 else 12)("apart"))
        flops, nbytes = 2 * shape.rows * shape.n * shape.k, 2 * shape.n * shape.k
        told = {"us": us, "TFLOP/s": flops / us / 1e6, "TB/s of weights": nbytes / us / 1e6}
        rows.append({"shape": " ".join(map(str, shape)), **told})
    common.show("products by the library", rows)
    return rows


class Placed(NamedTuple):
    """A product whose queries, keys and values are placed."""

    batch: int
    tokens: int
    heads: int


PLACED = [Placed(1, TOKENS, HEADS), Placed(1, 256, 22), Placed(8, TOKENS, HEADS), Placed(ROLLOUTS, TOKENS, HEADS)]


def placed_work(case: Placed, layers: int) -> Callable[[Any], list[Callable[[], Any]]]:
    """Cut, or that the product is the library's and what is placed is another launch -> by so many layers' weights."""
    from walkgraph.layers.kernels.paged_blocks import place
    from walkgraph.layers.kernels.placed_product import launch
    from walkgraph.layers.paged_blocks import Places

    width = case.heads * WIDTH
    room, x, bias = Room(case.batch, 0, 1, heads=case.heads), normal(case.batch * case.tokens, width), normal(3 * width)
    weights = [normal(3 * width, width, scale=width**-0.5) for _ in range(layers)]
    cos, sin, k, v = room.cos[:, : case.tokens], room.sin[:, : case.tokens], room.k[0], room.v[0]
    to = Places(cos, sin, k, v, room.rows, case.tokens)

    def one(cut: Any, weight: Tensor) -> Callable[[], Any]:
        if cut == "product":
            return lambda: F.linear(x, weight, bias)
        if cut == "apart":
            return lambda: place(F.linear(x, weight, bias), cos, sin, k, v, room.rows, case.tokens, PAGE)
        return lambda: launch(cut, x, weight, bias, to)

    return lambda cut: [one(cut, weight) for weight in weights]


def placed_cuts(case: Placed) -> list[Any]:
    from walkgraph.layers.kernels.product_config import STAYS, Cut

    if case.batch > 100:
        return [STAYS, replace(STAYS, stages=4), replace(STAYS, m=256, n=128)]
    if case.batch > 1:
        return [STAYS, Cut(128, 128, warps=8, stages=3), Cut(64, 128), Cut(128, 128, warps=8, stages=3, tail=False)]
    cuts = [Cut(128, 64), Cut(64, 128), Cut(64, 64, stages=6), Cut(128, 128, warps=8, stages=4)]
    cuts += [replace(cut, swap=True) for cut in cuts[:2]]
    cuts += [replace(cut, k=128, stages=2) for cut in cuts[:2]] + [replace(cut, ahead=False) for cut in cuts[:2]]
    if case.tokens == TOKENS:
        cuts += [replace(cut, tail=False) for cut in cuts]
    return cuts


def product_work(shape: Shape, layers: int) -> Callable[[Any], list[Callable[[], Any]]]:
    """Cut, or that the product is the library's -> products by so many layers' weights."""
    from walkgraph.layers.kernels.product import Ending, launch

    x, bias, out = normal(shape.rows, shape.k), normal(shape.n), normal(shape.rows, shape.n)
    weights = [normal(shape.n, shape.k, scale=shape.k**-0.5) for _ in range(layers)]
    end = Ending(None if shape.residual else bias, shape.activation, out if shape.residual else None)

    def one(cut: Any, weight: Tensor) -> Callable[[], Any]:
        if cut == "apart":
            return lambda: library(shape, x, weight, bias, out)
        return lambda: launch(cut, x, weight, end)

    return lambda cut: [one(cut, weight) for weight in weights]


def library(shape: Shape, x: Tensor, weight: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    if shape.residual:
        return out.addmm_(x, weight.t())
    if shape.activation is not None:
        return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
    return F.linear(x, weight, bias if shape.bias else None)


def product_cuts(shape: Shape) -> list[Any]:
    from walkgraph.layers.kernels.product_config import PROCESSORS, Cut, fits, tiles_of

    base = [Cut(64, 128), Cut(128, 64), Cut(64, 64, stages=6), Cut(128, 128, warps=8), Cut(64, 128, k=128, stages=3)]
    cuts: list[Cut] = []
    for cut, split in itertools.product(base, (1, 2, 3, 4, 6)):
        one = replace(cut, split=split, tail=False)
        down, across = tiles_of(one, shape.rows, shape.n)
        if 0.5 * PROCESSORS < down * across * split < 2.5 * PROCESSORS and fits(one, shape.rows, shape.n, shape.k):
            cuts += [one, replace(one, ahead=False)]
    return cuts


class Products:
    def __init__(self, compilers: Compilers, budget: common.Budget) -> None:
        self.budget, self.cases = budget, [*PLACED, *SHAPES[:4], *SHAPES[8:12]]
        self.cuts = {case: placed_cuts(case) if isinstance(case, Placed) else product_cuts(case) for case in self.cases}
        self.futures = {case: compilers.all([(case, cut) for cut in cuts]) for case, cuts in self.cuts.items()}

    def run(self) -> list[common.Row]:
        from walkgraph.layers.kernels.product_config import PLACED as OF_PLACED
        from walkgraph.layers.kernels.product_config import TABLE

        rows: list[common.Row] = []
        for case in self.cases:
            if not self.budget.allows(f"{case}"):
                continue
            placed = isinstance(case, Placed)
            n, k, count = (
                (3 * case.heads * WIDTH, case.heads * WIDTH, case.batch * case.tokens)
                if isinstance(case, Placed)
                else (case.n, case.k, case.rows)
            )
            layers = 2 if count > 20000 else 12
            work = placed_work(case, layers) if isinstance(case, Placed) else product_work(case, layers)
            times: dict[Any, float] = {name: per_call(work(name)) for name in ("apart", "product")[: 1 + placed]}
            for cut, future in zip(self.cuts[case], self.futures[case], strict=True):
                if (why := future.result(90)) is None:
                    times[cut] = per_call(work(cut))
                else:
                    print(told(cut), why, flush=True)
            best = sorted(
                (time, str(cut) if isinstance(cut, str) else told(cut), cut) for cut, time in times.items() if cut
            )
            if best[0][1] not in ("apart", "product"):
                table: dict[Any, dict[int, Any]] = OF_PLACED if placed else TABLE
                table.setdefault((n, k), {})[count] = best[0][2]
            found = [{"case": " ".join(map(str, case)), "us": us, "cut": name} for us, name, _ in best]
            common.show(f"{case}", found[:12])
            rows += found
        return rows


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
        Cut(m=64, within=True),
        Cut(m=128, warps=8, within=True),
    ]
    if batch >= 100:
        return [*tiles, Cut(m=64, block=32, stages=4), Cut(m=128, warps=8, block=32, stages=4)]
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
    def __init__(self, compilers: Compilers, budget: common.Budget) -> None:
        self.budget = budget
        cases = list(dict.fromkeys(alone(cut) for batch in (1, 8, ROLLOUTS) for cut in attention_cuts(batch)))
        self.futures = dict(zip(cases, compilers.all([(("attention", 300), cut) for cut in cases]), strict=True))

    def run(self) -> list[common.Row]:
        rows: list[common.Row] = []
        found: list[Found] = []
        for batch, context in CASES:
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
        """Of every batch, the cut that loses least over its contexts."""
        from walkgraph.layers.kernels.paged_blocks import CUTS

        for batch in dict.fromkeys(one.case[0] for one in found):
            of = [one.times for one in found if one.case[0] == batch]
            both = [cut for cut in of[0] if all(cut in times for times in of)]
            lost = {cut: sum(times[cut] / min(times.values()) for times in of) / len(of) for cut in both}
            cut = min(lost, key=lost.__getitem__)
            CUTS[batch * HEADS] = cut
            print(f"{batch} rollouts: {cut}, {lost[cut]:.3f} of the best of every context", flush=True)


if __name__ == "__main__":
    main()
