"""What a step of V-JEPA 2-AC's predictor and of its encoder takes on one GPU, layers of full size as one graph, and
which cuts of their products and of their attention are fastest.

    python benchmarks/gpu_world.py [--parts check sweep stacks] [--seconds 200] [--out world.json]

`check`: products, blocks placed and attended, and norms, beside float32. `sweep`: cuts of every product (of the
predictor for one, eight and 400 rollouts, of the encoder, of SigLIP and of Gemma's prefix) and of the predictor's
attention, in graphs that rotate through the weights of many layers, with the library's product beside them. `stacks`:
24 layers behind contexts of several lengths, for 1, 8 and 400 rollouts, and 40 layers of the encoder; then by kernel.
With `sweep`, `stacks` run with the cuts that were found best.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
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
    parser.add_argument("--parts", nargs="+", default=["check", "sweep", "stacks"])
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    budget, report = common.Budget(given.seconds), {}
    with torch.inference_mode():
        if "sweep" in given.parts:
            with Compilers(given.workers) as compilers:
                attention = Attentions(compilers, common.Budget(0.75 * given.seconds))
                products = Products(compilers, common.Budget(0.5 * given.seconds))
                if "check" in given.parts:
                    report["check"] = attempt(checks)
                for name, sweep in (("products", products), ("attention", attention)):
                    report[name] = attempt(sweep.run)
                    budget.left_out += sweep.budget.left_out
        elif "check" in given.parts:
            report["check"] = attempt(checks)
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
    x, weight, bias = normal(258, 1408) * 3 + 1, normal(1408), normal(1408)
    exact = F.layer_norm(x.float(), (1408,), weight.float(), bias.float(), 1e-6)
    yield {"what": "norm", "wrong by": wrong(norm_rows(x, None, weight, bias, 1e-6)[1], exact)}


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
            if isinstance(case, Shape):
                product_work(case._replace(rows=min(case.rows, 8 * TOKENS)), 1)(cut)[0]()
            else:
                attention_work(1, case[1], 1)(cut)[0]()
            torch.cuda.synchronize()
    except Exception as raised:  # noqa: BLE001 - whatever a compiler raises is a result
        return f"{type(raised).__name__}: {raised}"[:200]
    return None


def product_work(shape: Shape, layers: int) -> Callable[[Any], list[Callable[[], Any]]]:
    """Cut -> products by the weights of so many layers."""
    from walkgraph.layers.kernels.product import Ending, launch

    x, out = normal(shape.rows, shape.k), normal(shape.rows, shape.n)
    weights = [normal(shape.n, shape.k, scale=shape.k**-0.5) for _ in range(layers)]
    bias = normal(shape.n) if shape.bias else None
    end = Ending(bias, shape.activation, out if shape.residual else None)

    def one(cut: Any, weight: Tensor) -> Callable[[], Any]:
        if cut == "library":
            return lambda: library(x, weight, end)
        return lambda: launch(cut, x, weight, end)

    return lambda cut: [one(cut, weight) for weight in weights]


def library(x: Tensor, weight: Tensor, end: Any) -> Tensor:
    """The product alone, with what the library can end it with at once: not always all that is wanted."""
    if end.residual is not None:
        return end.residual.addmm_(x, weight.t())
    if end.activation is not None and end.bias is not None:
        return torch._addmm_activation(end.bias, x, weight.t(), use_gelu=True)
    return F.linear(x, weight, end.bias)


def product_cuts(shape: Shape) -> list[Any]:
    from walkgraph.layers.kernels.product_config import PROCESSORS, Cut, fits, tiles_of

    stays = [
        Cut(128, 256, warps=8, stages=stages, stays=True, group=group)
        for stages, group in ((3, 16), (4, 16), (3, 8))
        if not (shape.residual and stages > 3)
    ]
    if shape.rows > 20000:
        plain = [Cut(128, 128, warps=4, stages=3, ahead=False), Cut(128, 256, warps=8, stages=3, ahead=False)]
        return [
            *stays,
            Cut(128, 128, warps=4, stages=3, stays=True),
            Cut(256, 128, warps=8, stages=3, stays=True),
            *plain,
        ]
    tiles = [(64, 64, 4, 6), (64, 128, 4, 4), (128, 64, 4, 4), (128, 128, 8, 4), (128, 128, 8, 3), (128, 256, 8, 3)]
    cuts: list[Cut] = []
    for (m, n, warps, stages), split in itertools.product(tiles, (1, 2, 3, 4, 6, 8)):
        cut = Cut(m, n, warps=warps, stages=stages, split=split)
        down, across = tiles_of(cut, shape.rows, shape.n)
        programs, share = down * across * split, shape.k // cut.k // split
        if split == 1 and programs > 1.2 * PROCESSORS:
            cuts.append(cut)
        elif (
            0.45 * PROCESSORS <= programs <= 2.1 * PROCESSORS and share >= 2 and fits(cut, shape.rows, shape.n, shape.k)
        ):
            cuts.append(cut)
            if stages == 4 and warps == 4 and shape.rows < 300:
                cuts.append(replace(cut, swap=True))
    return [*cuts, *(stays[:1] if shape.rows > 900 else [])]


def product_variants(cut: Any) -> list[Any]:
    """The neighbours of a good cut."""
    if cut.stays:
        return [replace(cut, pdl=0), replace(cut, group=32)]
    more = [replace(cut, ahead=False), replace(cut, pdl=0), replace(cut, tail=not cut.tail)]
    more += [replace(cut, stages=cut.stages + d) for d in (-1, 1, 2) if cut.stages + d > 1]
    return [*more, replace(cut, k=128, stages=max(2, cut.stages // 2)), replace(cut, swap=not cut.swap)]


@dataclass
class Found:
    case: Any
    times: dict[Any, float]

    def best(self, but: object = None) -> list[Any]:
        return sorted((cut for cut in self.times if cut != but), key=self.times.__getitem__)


class Products:
    def __init__(self, compilers: Compilers, budget: common.Budget) -> None:
        self.compilers, self.budget = compilers, budget
        self.first = [(shape, cut) for shape in SHAPES for cut in product_cuts(shape)]
        self.futures = compilers.all(self.first)

    def run(self) -> list[common.Row]:
        found = [Found(shape, {}) for shape in SHAPES]
        self.measure(found, self.first, self.futures, library=True)
        again = [(one.case, cut) for one in found for best in one.best("library")[:1] for cut in product_variants(best)]
        again = [(case, cut) for case, cut in again if cut not in next(f for f in found if f.case is case).times]
        self.measure(found, again, self.compilers.all(again))
        self.use(found)
        return [row for one in found for row in self.told(one)]

    def measure(
        self,
        found: list[Found],
        cases: Sequence[tuple[Shape, Any]],
        futures: Sequence[Future[Any]],
        *,
        library: bool = False,
    ) -> None:
        pairs = list(zip(cases, futures, strict=True))
        for one in found:
            if not self.budget.allows(f"{one.case}"):
                continue
            layers = 2 if one.case.rows > 20000 else 12
            work = product_work(one.case, layers)
            if library:
                one.times["library"] = per_call(work("library"))
            for (case, cut), future in pairs:
                if case is not one.case or not self.budget.allows(f"{case} {cut}"):
                    continue
                try:
                    if future.result(60) is None:
                        one.times[cut] = per_call(work(cut))
                except Exception as raised:  # noqa: BLE001 - a cut that can't be launched is no result
                    print(case, told(cut), f"{type(raised).__name__}: {raised}"[:150], flush=True)
            common.show(f"{one.case}", self.told(one)[:6])

    @staticmethod
    def told(one: Found) -> list[common.Row]:
        shape, rows = one.case, []
        flops, nbytes = 2 * shape.rows * shape.n * shape.k, 2 * shape.n * shape.k
        for cut in one.best():
            us = one.times[cut]
            name = cut if cut == "library" else told(cut)
            rows.append({"us": us, "TFLOP/s": flops / us / 1e6, "TB/s of weights": nbytes / us / 1e6, "cut": name})
        at = one.best().index("library") if "library" in one.times else 0
        rows = [*rows[:5], *rows[at : at + 1]] if at >= 5 else rows[:6]
        return [{"shape": " ".join(map(str, shape)), **row} for row in rows]

    @staticmethod
    def use(found: list[Found]) -> None:
        from walkgraph.layers.kernels.product_config import TABLE

        for one in found:
            if best := one.best("library"):
                TABLE.setdefault((one.case.n, one.case.k), {})[one.case.rows] = best[0]


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
        Cut(m=64),
        Cut(m=64, within=True),
        Cut(m=64, stages=4),
        Cut(m=128, warps=8),
        Cut(m=128, warps=8, within=True),
        Cut(m=128, warps=8, stages=2),
        Cut(m=128, warps=4, stages=2),
        Cut(m=128, warps=8, block=128, stages=2),
        Cut(m=64, block=128, stages=2),
    ]
    if batch >= 100:
        return [*tiles, Cut(m=64, stages=2), Cut(m=64, block=32, stages=4), Cut(m=128, warps=8, stages=2, within=True)]
    shares = (
        [(1, 256), (2, 256), (4, 256), (8, 256), (4, 512), (8, 128)] if batch == 1 else [(1, 256), (2, 512), (4, 512)]
    )
    return [replace(tile, splits=splits, least=least) for tile in tiles for splits, least in shares]


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
