"""Measures the gain and the error of eight-bit floats in BAGEL's flow step: full-size products on one GPU.

    python benchmarks/gpu_fp8.py [--rows 4096 8192] [--layers 28] [--repeats 12] [--out fp8.json] [--check]

`products`: the product of a linear alone, over the weights of several layers, in bfloat16 and in eight bits: with a
scale per row and output and sums rounded as in the tensor cores (`rows`, as in the layers), with sums in float32
(`exact sums`), and with a single scale (`one scale`, which no layer uses). `producers`: the kernels that quantize the
rows, and the bytes that they move. `linears`: all linears of one layer, with the work before and after each. `errors`:
numbers of a product, and of a flow step through `--layers` random layers, against bfloat16, with and without the first
and the last layer in bfloat16. Random weights have no outliers, so errors of real weights may be larger. `--check` runs
the tiny model, also on a CPU, and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import _common as common
import torch
from gpu_flow import TIME, Bench, Work, timed
from torch import Tensor
from torch.nn import functional as F

from walkgraph.layers.linear.flow_linear import MLP_ROWS, FlowLinears, PlainFlowLinears
from walkgraph.layers.linear.fp8 import Fp8FlowLinears, Scaled, product, quantise, scaled, scaled_gated, scaled_norm
from walkgraph.layers.linear.mlp import SwiGLU, gated
from walkgraph.layers.norm.rms_norm import RMSNorm, rms_norm
from walkgraph.models.bagel.flow import FlowStep
from walkgraph.models.bagel.mot import GEN

SOME = 6
"""Layers whose weights are read in turn: more than lie in L2."""


class Case(NamedTuple):
    name: str
    weights: list[Tensor]
    """`[N, K]` of each layer."""
    quick: list[Scaled]


def main() -> None:
    given = options()
    torch.manual_seed(0)
    with torch.inference_mode():
        here = Fp8Bench(given)
        report: dict[str, Any] = {}
        for name, rows in (
            ("products", here.products()),
            ("producers", here.producers()),
            ("product errors", here.product_errors()),
            ("linears", here.linears()),
            ("errors", here.errors()),
        ):
            report[name] = list(rows)
            common.show(name, report[name])
    common.write(None if given.check else given.out, here.flow.device.type, report)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        given.rows, given.layers, given.repeats = [16], 2, 2
    return given


class Fp8Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, side = given, 4 if given.check else 64
        flow = {"side": side, "branches": 1, "context": [32], "layers": given.layers, "fp8": False, "record": False}
        self.flow = Bench(argparse.Namespace(**flow, repeats=given.repeats, tiny=given.check))
        self.device, self.dtype = self.flow.device, self.flow.dtype
        some = self.flow.layers[:SOME]
        mlps = [cast(SwiGLU, layer.get_submodule(f"mlp{GEN}")) for layer in some]
        weights = {
            "qkv": [layer.self_attn.packed[GEN].weight for layer in some],
            "o": [layer.self_attn.part("o_proj", GEN).weight for layer in some],
            "gate_up": [mlp.gate_up.weight for mlp in mlps if mlp.gate_up is not None],
            "down": [mlp.down_proj.weight for mlp in mlps],
        }
        self.cases = [Case(name, each, [Scaled.of(one) for one in each]) for name, each in weights.items()]

    def products(self) -> Iterator[common.Row]:
        for rows in self.given.rows:
            for case in self.cases:
                n, k = case.weights[0].shape
                x, out = self.normal(rows, k), self.normal(rows, n)
                small = scaled(x[None])
                ways: dict[str, Work] = {
                    "bf16": partial(plain_products, x, case.weights),
                    "bf16 added": partial(plain_products, x, case.weights, out),
                    "rows": partial(small_products, small, case.quick, self.dtype),
                }
                if self.device.type == "cuda":
                    one = torch.ones((), device=self.device)
                    ways["exact sums"] = partial(other_products, small, case.quick, None, fast=False)
                    ways["one scale"] = partial(other_products, small, case.quick, one, fast=True)
                for way, work in ways.items():
                    row = {"rows": rows, "linear": case.name, "n": n, "k": k, "way": way}
                    try:
                        ms = self.timed(work) / len(case.weights)
                    except RuntimeError as error:  # a way that the library hasn't; it is only compared with
                        yield row | {"failed": str(error)[:80]}
                        continue
                    yield row | {"ms": ms, "TFLOP/s": 2 * rows * n * k / ms / 1e9}

    def producers(self) -> Iterator[common.Row]:
        """Over other rows in turn, so that they don't lie in L2."""
        llm, rows, size = self.flow.llm, max(self.given.rows), self.dtype.itemsize
        part = min(rows, MLP_ROWS)
        norm = cast(RMSNorm, self.flow.layers[0].get_submodule(f"input_layernorm{GEN}"))
        xs, gates = [self.normal(rows, llm.width) for _ in range(6)], [self.normal(part, 2 * llm.hidden)] * 2
        cases: list[tuple[str, float, list[Work]]] = [
            ("norm", rows * llm.width * (size + size), [partial(rms_norm, x, norm.weight, norm.eps) for x in xs]),
            ("norm, fp8", rows * llm.width * (size + 1), [partial(scaled_norm, x, norm) for x in xs]),
            ("rows, fp8", rows * llm.width * (size + 1), [partial(scaled, x[None]) for x in xs]),
            ("gates", part * llm.hidden * 3 * size, [partial(gated, g) for g in gates]),
            ("gates, fp8", part * llm.hidden * (2 * size + 1), [partial(scaled_gated, g) for g in gates]),
            ("add", rows * llm.width * 3 * size, [partial(x.add_, y) for x, y in zip(xs[::2], xs[1::2], strict=True)]),
        ]
        for name, nbytes, each in cases:
            ms = self.timed(partial(all_of, each)) / len(each)
            yield {"what": name, "ms": ms, "TB/s": nbytes / ms / 1e9}

    def product_errors(self) -> Iterator[common.Row]:
        """Against float32."""
        for case in self.cases:
            x, weight = self.normal(256, case.weights[0].shape[1]), case.weights[0]
            wanted = F.linear(x.float(), weight.float())
            small = scaled(x[None])
            twin = F.linear(small.plain(), case.quick[0].plain())
            got = product(small, case.quick[0], self.dtype)
            row = {"linear": case.name, "bf16": off(F.linear(x, weight), wanted), "fp8": off(got, wanted)}
            yield row | {"fp8, sums alone": off(got, twin)}

    def linears(self) -> Iterator[common.Row]:
        """Leaves the first layers in eight bits."""
        some, llm = self.flow.layers[:SOME], self.flow.llm
        numbers = sum(weight.numel() for weight in (case.weights[0] for case in self.cases))
        plain = [PlainFlowLinears(layer, GEN) for layer in some]
        before = {rows: self.timed(partial(self.layers_of, plain, rows)) for rows in self.given.rows}
        self.flow_before = self.velocity()
        del plain
        self.cases.clear()  # their weights are held twice otherwise
        for layer in some:
            quantise(layer, GEN)
        small = [Fp8FlowLinears(layer, GEN) for layer in some]
        for rows in self.given.rows:
            for way, ms in (("bf16", before[rows]), ("fp8", self.timed(partial(self.layers_of, small, rows)))):
                ms /= len(some)
                yield {"rows": rows, "way": way, "ms a layer": ms, "TFLOP/s": 2 * rows * numbers / ms / 1e9}
                yield {"rows": rows, "way": f"{way}, {llm.layers} layers", "ms a layer": ms * llm.layers}

    def errors(self) -> Iterator[common.Row]:
        """A velocity of the same latents; `linears` took it by bfloat16 and made the first layers small."""
        layers = self.flow.layers
        if len(layers) > SOME:
            yield {"small layers": f"{SOME} of {len(layers)}", "relative": off(self.velocity(), self.flow_before)}
        for layer in layers[SOME:-1]:
            quantise(layer, GEN)
        if len(layers) > SOME:
            yield {"small layers": "all but the last", "relative": off(self.velocity(), self.flow_before)}
            quantise(layers[-1], GEN)
        yield {"small layers": "all", "relative": off(self.velocity(), self.flow_before)}

    def velocity(self) -> Tensor:
        """The velocity of latents that are the same every time."""
        if not hasattr(self, "_batch"):
            self._batch = self.flow.batch(self.flow.contexts[:1])
        self._batch.params["time"].fill_(TIME)
        return FlowStep(self.flow.model)(self._batch).ports["velocity"].clone()

    def layers_of(self, linears: Sequence[FlowLinears], rows: int) -> None:
        if not hasattr(self, "_x") or self._x.shape[0] != rows:
            self._x, self._heads = self.normal(rows, self.flow.llm.width), self.normal(1, rows, self.flow.llm.width)
        for each in linears:
            each.qkv(self._x)
            each.o(self._heads, self._x)
            each.mlp(self._x)

    def timed(self, work: Work) -> float:
        return timed(work, self.given.repeats, self.device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.dtype, device=self.device)


def plain_products(x: Tensor, weights: Sequence[Tensor], added: Tensor | None = None) -> None:
    for weight in weights:
        _ = F.linear(x, weight) if added is None else added.addmm_(x, weight.t(), beta=0.5)


def small_products(x: Scaled, weights: Sequence[Scaled], dtype: torch.dtype) -> None:
    for weight in weights:
        product(x, weight, dtype)


def other_products(x: Scaled, weights: Sequence[Scaled], scale: Tensor | None, *, fast: bool) -> None:
    for weight in weights:
        scales = (x.scale, weight.scale.t()) if scale is None else (scale, scale)
        torch._scaled_mm(
            x.numbers, weight.numbers.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast
        )  # fmt: skip


def all_of(each: Sequence[Work]) -> None:
    for work in each:
        work()


def off(got: Tensor, wanted: Tensor) -> float:
    return float((got.float() - wanted.float()).norm() / wanted.float().norm())


if __name__ == "__main__":
    main()
