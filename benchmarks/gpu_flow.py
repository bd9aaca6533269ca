"""Measures one flow step of BAGEL's backbone and where its time goes: full-size layers as one CUDA graph, on one GPU.

    python benchmarks/gpu_flow.py [--side 64] [--branches 2] [--context 32] [--layers 28] [--fp8]
        [--variants beside,-1 ...] [--record] [--out flow.json] [--tiny]

A step predicts one velocity for each of `--branches` rows of `--side` by `--side` latents behind contexts of
`--context` tokens; several contexts can be given. `together`: all rows are one batch; `in turn`: one batch per row.
Variants of a step are timed alternately, because at its power limit a chip slows down the variant that runs later. `in
order` and `beside, PRIORITY` say where BOI and EOI run: after the latents or on a separate stream. `down whole`
computes that product for all rows at once. The following tables have the GPU time of one step in order, by kind and by
kernel; the products of the latents alone, over the weights of all layers; the work between them, with the bytes that it
moves; and the difference between the step and the same network without any kernels. `--record` measures only steps as
they are served, of many sizes, with weights in bfloat16 and then in eight bits. `--tiny` and `--check` run the tiny
model, also on a CPU, and write nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common

from walkgraph.abi.states import CacheShape
from walkgraph.abi.step import PagedRows, PagedSlot, StepBatch
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.attention.block_attention import place_heads
from walkgraph.layers.attention.dense_attention import PackedAttend
from walkgraph.layers.attention.heads import HeadNorms, HeadTargets, RotaryTable
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import MLP_ROWS, PlainFlowLinears, down_rows
from walkgraph.layers.linear.fp8 import quantise
from walkgraph.layers.linear.mlp import gated_product
from walkgraph.layers.norm.rms_norm import rms_norm
from walkgraph.layers.pictures.patches import grid_ids
from walkgraph.layers.unset import unset
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.flow import FlowStep
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import GEN
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.rows import EDGES

Work = Callable[[], object]
Name = TypeVar("Name")
TIME = 0.7
_UND = ("_vector", "_matrix", "_norm", "_blocks", "_shares")
"""Kernels of linears of few rows."""
_SERVED = ((64, (32,)), (64, (32, 32)), (64, (9030, 9002, 25)), *((32, (32,) * rows) for rows in (1, 2, 4, 8)))
"""Sides, and contexts of every row: pictures from text, edits, and small pictures of several runs."""


def main() -> None:
    given = options()
    torch.manual_seed(0)
    with torch.inference_mode():
        bench = Bench(given)
        if given.record:
            record(bench)
            return
        report: dict[str, Any] = {"steps": bench.steps()}
        common.show("a step", report["steps"])
        report["profile"], report["kinds"] = bench.profile()
        common.show("the GPU's time of a step in order, by kind, ms", report["kinds"])
        common.show("by kernel, ms", report["profile"])
        if not given.fp8:
            report["products"] = list(bench.products())
            common.show("products of one layer's latents, bfloat16", report["products"])
        report["between"] = list(bench.between())
        common.show("between the products, one layer", report["between"])
        report["error"] = bench.error()
        common.show("relative difference to the network without kernels", [report["error"]])
    common.write(None if given.tiny else given.out, bench.device.type, report)


def record(bench: Bench) -> None:
    rows: list[common.Row] = []
    for weights in ("bfloat16", "eight bits"):
        if weights != "bfloat16":
            bench.quantise()
        for side, contexts in _SERVED:
            bench.aim(4 if bench.given.tiny else side, contexts)
            size = {"weights": weights, "pixels": 16 * bench.side, "branches": len(contexts), "context": max(contexts)}
            rows += [{**size, **step} for step in bench.steps()]
    common.show("a step as it is served", rows)
    common.write(None if bench.given.tiny else bench.given.out, bench.device.type, {"steps": rows})


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64, help="side of a row's grid of latents")
    parser.add_argument("--branches", type=int, default=2)
    parser.add_argument("--context", type=int, nargs="+", default=[32], help="context lengths of the rows, repeated")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--fp8", action="store_true", help="use eight-bit weights for the latents' products")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--variants", nargs="*", help="names of the variants to time; default: all")
    parser.add_argument("--record", action="store_true", help="measure steps of many sizes as they are served")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tiny", "--check", action="store_true")
    given = parser.parse_args()
    if given.tiny:
        given.side, given.layers, given.repeats = 4, 2, 2
    return given


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, cuda = given, torch.cuda.is_available()
        self.device = torch.device("cuda" if cuda else "cpu")
        self.dtype = torch.bfloat16 if cuda else torch.float32
        self.model = drawn_model(config_of(given), self.device, self.dtype)
        self.llm = self.model.config.llm
        self.layers = [cast(DecoderLayer, layer) for layer in self.model.language_model.model.layers]
        if given.fp8:
            self.quantise()
        shape = CacheShape(
            layers=self.llm.layers, kv_heads=self.llm.kv_heads, head_dim=self.llm.head_dim, dtype=self.dtype
        )
        longest = max([*given.context, *(max(contexts) for _, contexts in _SERVED if given.record)])
        self.pool = Pool(shape, pages_for(longest) + 1, self.device)
        for cache in (*self.pool.k, *self.pool.v):
            cache.normal_()
        self.aim(given.side, list(islice(cycle(given.context), max(given.branches, len(given.context)))))

    def aim(self, side: int, contexts: Sequence[int]) -> None:
        """Sets what is measured next: rows of `side` by `side` latents behind these contexts."""
        self.side, self.cells, self.contexts = side, side**2, contexts

    def quantise(self) -> None:
        self.given.fp8 = True
        for layer in self.layers:
            quantise(layer, GEN)

    def flops(self, contexts: Sequence[int]) -> float:
        """Floating-point operations for the latents of rows behind these contexts."""
        llm, rows = self.llm, self.cells
        heads = llm.heads * llm.head_dim
        linears = llm.width * (2 * heads + 2 * llm.kv_heads * llm.head_dim) + 3 * llm.width * llm.hidden
        each = [2 * rows * linears + 4 * rows * (rows + EDGES + context) * heads for context in contexts]
        return llm.layers * sum(each)

    def batch(self, contexts: Sequence[int]) -> StepBatch:
        tokens, rows = self.cells + EDGES, len(contexts)
        room = DenseContext(self.pool, rows, tokens, capacity_for(contexts, rows, tokens))
        room.place([ContextSequence(range(1, 1 + pages_for(context)), context, 1, "context") for context in contexts])
        nothing = torch.zeros(rows, dtype=torch.int64, device=self.device)
        tables = PagedRows(nothing.int(), nothing[:, None].int(), nothing.int(), nothing.int())
        side, channels = self.side, self.model.config.latent_channels
        return StepBatch(
            rows=nothing.int(),
            inputs={"latents": torch.randn(rows, side, side, channels, device=self.device)},
            params={"time": torch.full((rows,), TIME, device=self.device)},
            seed=nothing,
            iteration=nothing,
            paged={"kv": PagedSlot((), (), tables, room)},
        )

    def steps(self) -> Sequence[common.Row]:
        """Ways in turn, round by round, so that all of them meet the chip as warm as the others left it."""
        ways = self.variants()
        batches = {"together": [self.batch(self.contexts)]}
        if len(self.contexts) > 1 and not self.given.record:
            batches["in turn"] = [self.batch([context]) for context in self.contexts]
        works: dict[tuple[str, str], Work] = {}
        for variant, step in ways.items():
            for rows, each in batches.items():

                def work(step: FlowStep = step, each: Sequence[StepBatch] = each) -> None:
                    for batch in each:
                        step(batch)

                works[rows, variant] = captured(work, self.device)
        found = interleaved(works, self.given.repeats, self.device)
        branches, flops = len(self.contexts), self.flops(self.contexts) / 1e9
        return [
            {"rows": rows, "variant": variant, "ms": ms, "ms a branch": ms / branches, "TFLOP/s": flops / ms}
            for (rows, variant), ms in found.items()
        ]

    def variants(self) -> Mapping[str, FlowStep]:
        if self.given.record:
            return {"served": FlowStep(self.model)}
        ways = {"in order": FlowStep(self.model, overlap=False)}
        for priority in (0, -1):
            ways[f"beside, {priority}"] = FlowStep(self.model, overlap=True, priority=priority)
        if not self.given.fp8:
            ways["down whole"] = FlowStep(self.model, linears=partial(PlainFlowLinears, down_rows=lambda rows: rows))
        wanted = self.given.variants
        return ways if wanted is None else {name: way for name, way in ways.items() if name in wanted}

    def profile(self) -> tuple[Sequence[common.Row], Sequence[common.Row]]:
        """The kernels of one step of all branches together, launched one by one, and their kinds."""
        from torch.profiler import ProfilerActivity, profile

        cuda = self.device.type == "cuda"
        step, batch = FlowStep(self.model, overlap=False), self.batch(self.contexts)
        for _ in range(2):
            step(batch)
        with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as trace:
            step(batch)
            if cuda:
                torch.cuda.synchronize()
        took = "self_device_time_total" if cuda else "self_cpu_time_total"
        found = [(getattr(one, took) / 1e3, one.count, one.key) for one in trace.key_averages()]
        kinds: dict[str, float] = {}
        for ms, _, kernel in found:
            kinds[kind_of(kernel)] = kinds.get(kind_of(kernel), 0.0) + ms
        rows = [{"ms": ms, "calls": calls, "kernel": key[:90]} for ms, calls, key in sorted(found, reverse=True) if ms]
        return rows[:20], [{"all": sum(kinds.values()), **dict(sorted(kinds.items()))}]

    def products(self) -> Iterator[common.Row]:
        llm, heads = self.llm, self.llm.heads * self.llm.head_dim
        both = {1, len(self.contexts)}
        for rows in sorted(min(n * self.cells, MLP_ROWS) for n in both):
            for name, k, pick in (
                ("qkv", llm.width, lambda layer: layer.self_attn.packed[GEN].weight),
                ("o", heads, lambda layer: layer.self_attn.part("o_proj", GEN).weight),
                ("gate_up", llm.width, lambda layer: layer.get_submodule(f"mlp{GEN}").gate_up.weight),
                ("down", llm.hidden, lambda layer: layer.get_submodule(f"mlp{GEN}.down_proj").weight),
            ):
                weights = [pick(layer) for layer in self.layers]
                x, added = self.normal(rows, k), self.normal(rows, weights[0].shape[0])
                work = partial(multiplied, name, x, weights, added)
                ms = timed(work, self.given.repeats, self.device) / len(weights)
                n = weights[0].shape[0]
                yield {"rows": rows, "product": name, "n": n, "k": k, "ms": ms, "TFLOP/s": 2 * rows * n * k / ms / 1e9}

    def between(self) -> Iterator[common.Row]:
        """Over other rows in turn, so that they don't lie in L2."""
        llm, batch = self.llm, self.batch(self.contexts)
        rows, block = self.cells * len(self.contexts), cast(DenseContext, batch.paged["kv"].block)
        size = self.dtype.itemsize
        packed = (llm.heads + 2 * llm.kv_heads) * llm.head_dim
        x, weight = [self.normal(rows, llm.width) for _ in range(4)], self.normal(llm.width)
        qkv, norm = [self.normal(rows, packed) for _ in range(4)], self.normal(llm.head_dim)
        norms = HeadNorms(norm, norm, 1e-6)
        turns = RotaryTable.at(block.positions, self.model.language_model.model.rope.frequencies(self.device))
        q = self.normal(block.slots.shape[0], llm.heads, llm.head_dim)
        to = HeadTargets(q, block.k[0], block.v[0], block.slots)
        cases: list[tuple[str, float, list[Work]]] = [
            ("norm", 2 * rows * llm.width, [lambda x=x: rms_norm(x, weight, 1e-6) for x in x]),
            ("heads", 2 * rows * packed, [lambda y=y: place_heads(y, turns, norms, to, 0) for y in qkv]),
            ("heads of all rows together", 2 * rows * llm.width, [self.gathered]),
        ]
        for name, numbers, each in cases:

            def work(each: list[Work] = each) -> None:
                for one in each * 4:
                    one()

            ms = timed(work, self.given.repeats, self.device) / (4 * len(each))
            yield {"what": name, "ms": ms, "TB/s": numbers * size / ms / 1e9}

    def gathered(self) -> Tensor:
        """Attention of the latents of several rows, as one matrix."""
        if not hasattr(self, "_attended"):
            self._attended = self.normal(len(self.contexts), self.cells + EDGES, self.llm.heads * self.llm.head_dim)
        return self._attended[:, : self.cells].flatten(0, 1)

    def error(self) -> Mapping[str, float]:
        """The error of one row against the same layers with plain products and torch attention."""
        batch = self.batch(self.contexts[:1])
        found = FlowStep(self.model)(batch).ports["velocity"][0].flatten(0, 1)
        wanted = self.plain(batch)
        return {"relative": float((found - wanted).norm() / wanted.norm())}

    def plain(self, batch: StepBatch) -> Tensor:
        model, latents, block = self.model, batch.inputs["latents"][0], cast(DenseContext, batch.paged["kv"].block)
        ids = grid_ids(self.side, self.side, model.config.latent_side, device=self.device)
        tokens = model.embed_latents(latents.flatten(0, 1), batch.params["time"], ids)
        boi, eoi = model.config.tokens.boi, model.config.tokens.eoi
        x = torch.cat([model.embed_text(torch.tensor([boi, eoi], device=self.device)), tokens])
        context = slice(0, self.contexts[0])
        past = [(k[context][None], v[context][None]) for k, v in zip(block.k, block.v, strict=True)]
        attend = PackedAttend((EDGES, self.cells), past=past)
        h = model.backbone(x, block.positions.expand(x.shape[0]), EDGES, attend)
        return F.linear(h[EDGES:].float(), model.llm2vae.weight.float(), model.llm2vae.bias.float())

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.dtype, device=self.device)


def config_of(given: argparse.Namespace) -> BagelConfig:
    """Full size but for what no flow step reads."""
    if given.tiny:
        return BAGEL["bagel-tiny"]
    full = BAGEL["bagel-7b-mot"]
    tokens = replace(full.tokens, bos=0, eos=1, boi=2, eoi=3)
    return replace(
        full, llm=replace(full.llm, layers=given.layers, vocab=1024), vit=replace(full.vit, layers=1), tokens=tokens
    )


def drawn_model(config: BagelConfig, device: torch.device, dtype: torch.dtype) -> Bagel:
    with unset():
        model = Bagel(config)
    model = model.to(dtype).to_empty(device=device).requires_grad_(False).eval()
    for name, value in model.named_parameters():
        if "norm" in name:
            value.uniform_(0.8, 1.2)
        else:
            value.normal_(0, 0.02 if value.dim() < 2 else value.shape[1] ** -0.5)
    return model.pack()


def multiplied(name: str, x: Tensor, weights: Sequence[Tensor], added: Tensor) -> None:
    """As a layer does it; `added` is what a product is added to."""
    for weight in weights:
        if name == "gate_up":
            gated_product(x, weight)
        elif name == "qkv":
            F.linear(x, weight)
        else:
            each = down_rows(x.shape[0]) if name == "down" else x.shape[0]
            for part, rows in zip(added.split(each), x.split(each), strict=True):
                part.addmm_(rows, weight.t())


def captured(work: Work, device: torch.device) -> Work:
    """On a GPU the replay of its graph."""
    if device.type != "cuda":
        return work
    stream, graph = torch.cuda.Stream(device), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        work()
        work()
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph.replay


def interleaved(works: Mapping[Name, Work], rounds: int, device: torch.device) -> Mapping[Name, float]:
    """Milliseconds of each, the median of some rounds, after one that is not counted."""
    marks: list[list[Callable[[], float]]] = []
    for _ in range(rounds + 1):
        marks.append([marked(work, device) for work in works.values()])
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    medians = [statistics.median(took() for took in each) for each in zip(*marks[1:], strict=True)]
    return dict(zip(works, medians, strict=True))


def marked(work: Work, device: torch.device) -> Callable[[], float]:
    """Launches it; what it gives tells the milliseconds it took, once it is done."""
    if device.type != "cuda":
        began = time.perf_counter()
        work()
        took = 1e3 * (time.perf_counter() - began)
        return lambda: took
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    work()
    after.record()
    return lambda: before.elapsed_time(after)


def timed(work: Work, repeats: int, device: torch.device) -> float:
    """Milliseconds, the median of some; on a GPU those of a replayed graph."""
    return interleaved({"": captured(work, device)}, repeats, device)[""]


def kind_of(kernel: str) -> str:
    lower = kernel.lower()
    if any(word in lower for word in ("prefill", "flashinfer", "fmha", "flash")):
        return "attention"
    if kernel.startswith(_UND) or "splitkreduce" in lower:
        return "edges" if kernel.startswith(_UND) else "GEMM"
    if any(word in lower for word in ("gemm", "nvjet", "cutlass", "xmma", "addmm", "aten::mm", "scaled_mm", "gate_up")):
        return "GEMM"
    return "between"


if __name__ == "__main__":
    main()
