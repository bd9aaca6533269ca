"""Measures V-JEPA 2-AC on one GPU: encoding pictures, predicting frames, rollouts and rounds of planning.

    python benchmarks/gpu_vjepa2.py [--only PART ...] [--out FILE] [--check]

Weights are random, at full size. `parity`: the served forms in bfloat16 against the plain network in float32, and for
comparison the plain network in bfloat16. `encoder`, `step`, `rollout`: one CUDA graph each, medians of replays; the
graph of a rollout contains all its frames, one after the other in a paged cache. `samples`: the frames of a planning
round, not captured; `plan`: ten rounds. `numbers`: the work between them. `products`: those of a layer, each with the
norm before it or the sum behind it, by tiles that fit the rows and by the library; a graph goes through all layers.
`profile`: GPU time by kernel. `--check` runs the tiny model, also on a CPU, and captures nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from _timed import Work, as_graph, elapsed
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common

from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.drawn import drawn
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.layers.encoder import EncoderWeights
from walkgraph.layers.kernels.fitted_product import Cut, Norm, added, choose, mapped
from walkgraph.layers.linear.product import product
from walkgraph.layers.norm.layer_norm import row_sums, shifted_norm
from walkgraph.layers.poses import move
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2.model import ACTION, Vjepa2, Vjepa2Block, normed
from walkgraph.models.vjepa2.presets import vjepa2_config
from walkgraph.models.vjepa2.steps import EncoderSteps, PredictorSteps


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    report: dict[str, Any] = {}
    with torch.inference_mode():
        bench = Bench(tiny=given.check)
        for part in (
            bench.parity,
            bench.encoder,
            bench.step,
            bench.rollout,
            bench.samples,
            bench.plan,
            bench.numbers,
            bench.products,
            bench.profile,
        ):
            if given.only and part.__name__ not in given.only:
                continue
            try:
                report[part.__name__] = part()
                common.show(f"{part.__name__}", report[part.__name__])
            except Exception:  # noqa: BLE001  one measurement's failure must not cost the others
                traceback.print_exc()
                sys.stdout.flush()
            if bench.cuda:
                torch.cuda.empty_cache()
            common.write(given.out, bench.device.type, report)


class Bench:
    def __init__(self, *, tiny: bool) -> None:
        self.tiny, self.cuda = tiny, torch.cuda.is_available()
        self.device = torch.device("cuda" if self.cuda else "cpu")
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.config = vjepa2_config("vjepa2-ac-tiny" if tiny else "vjepa2-ac-vitg")
        self.model = drawn(lambda: Vjepa2(self.config), 0, device=self.device, dtype=self.dtype)
        self.see, self.predict = EncoderSteps(self.model.encoder), PredictorSteps(self.model.predictor)

    # ── what is measured ──

    def parity(self) -> list[dict[str, Any]]:
        config, rows = self.config, []
        plain = drawn(lambda: Vjepa2(config), 0, device=self.device, dtype=torch.float32)
        # The same numbers: those of the model served, which are rounded.
        plain.load_state_dict({name: tensor.float() for name, tensor in self.model.state_dict().items()})
        pixels = self.random(2, 3, config.pixels, config.pixels).clamp(-1, 1)
        wanted = normed(plain.encoder(pixels))
        rows.append(_apart("encoder", wanted, self.see(pixels), normed(self.model.encoder(pixels))))
        frames, actions, poses = self.random(2, 3, *self.frame), self.random(2, 3, ACTION), self.random(2, 3, ACTION)
        exact = normed(plain.predictor(frames, actions, poses))
        # The plain network rounds its actions, and is held against itself in the same type.
        rough = normed(self.model.predictor(*(part.to(self.dtype) for part in (frames, actions, poses))))
        slot, stepped = self.slot(2, 0, 3), []
        for at in range(3):
            stepped.append(self.predict.step(frames[:, at].to(self.dtype), actions[:, at], poses[:, at], slot))
            self.on(slot)
        rows.append(_apart("predictor, 3 frames", exact, torch.stack(stepped, 1), rough))
        return rows

    def encoder(self) -> list[dict[str, Any]]:
        rows = []
        for batch in (1, 2, 4, 8, 16) if not self.tiny else (1, 2):
            pixels = self.random(batch, 3, self.config.pixels, self.config.pixels)
            rows.append(
                {"batch": batch, **self.timed(lambda pixels=pixels: self.see(pixels), self.config.encoder.layers)}
            )
        return rows

    def step(self) -> list[dict[str, Any]]:
        rows = []
        for batch in (1, 8) if not self.tiny else (1, 2):
            for frames in (0, 8, 16, 30) if not self.tiny else (0, 2):
                slot = self.slot(batch, frames, 1)
                work = partial(self.predict.step, *self.given(batch), slot)
                tokens = frames * self.config.tokens
                rows.append({"batch": batch, "context": tokens, **self.timed(work, self.config.predictor.layers)})
        return rows

    def rollout(self) -> list[dict[str, Any]]:
        rows = []
        for batch, horizon in ((1, 4), (1, 15), (1, 30), (8, 15)) if not self.tiny else ((1, 2),):
            slot, (features, action, pose) = self.slot(batch, 0, horizon), self.given(batch)

            def work(slot: PagedSlot = slot, given: Any = (features, action, pose), horizon: int = horizon) -> None:
                frame, taken, at = given
                for _ in range(horizon):
                    frame, at = self.predict.step(frame, taken, at, slot), move(at, taken)
                    self.on(slot)
                self.on(slot, -horizon)

            rows.append(
                {"batch": batch, "horizon": horizon, **self.timed(work, self.config.predictor.layers * horizon)}
            )
        return rows

    def samples(self) -> list[dict[str, Any]]:
        return [row for width in ((400, 100) if not self.tiny else (3,)) for row in self.sampled(width)]

    def sampled(self, width: int) -> list[dict[str, Any]]:
        features, action, pose = self.given(1)
        wide = action.expand(width, -1)[None] + 0.01 * self.random(1, width, ACTION)
        slot = self.slot(width, 0, 2)
        self.reset()

        def row(what: str, work: Work) -> dict[str, Any]:
            return {"samples": width, "what": what, **self.timed(work, 1, captured=False), **self.peak()}

        rows = [row("frame 0", partial(self.predict.step, features, wide, pose, slot))]
        frame = self.predict.step(features, wide, pose, slot)
        self.on(slot)
        rows.append(row("frame 1", partial(self.predict.step, frame, wide, pose, slot)))
        rows.append(row("distance", partial(planning.distance, frame, features)))
        return rows

    def plan(self) -> list[dict[str, Any]]:
        width, rounds = (400, 10) if not self.tiny else (12, 2)
        slot, (features, _, pose), goal = self.slot(width, 0, 2), self.given(1), self.given(1)[0]
        seed = torch.tensor([3], device=self.device)
        norm = torch.full((1,), 0.05, device=self.device)
        momentum = planning.Momentum(*(torch.full((1,), 0.15, device=self.device) for _ in range(4)))

        def work() -> Tensor:
            mean, std = (part[None] for part in planning.rest(2, 0.05, device=self.device))
            for index in range(rounds):
                noise = planning.normals(seed, torch.full_like(seed, index), 2, width)
                actions = planning.propose(noise, mean, std, norm)
                frame, at = features, pose[:, None]
                for step in range(2):
                    before = at if step else pose
                    frame = self.predict.step(frame, actions[:, step], before, slot)
                    at = move(at, actions[:, step])
                    self.on(slot)
                self.on(slot, -2)
                cost = planning.distance(frame, goal)
                mean, std = planning.refine(actions, cost, mean, std, momentum, 10)
            return planning.chosen(mean)

        self.reset()
        return [{"samples": width, "rounds": rounds, **self.timed(work, rounds, captured=False), **self.peak()}]

    def numbers(self) -> list[dict[str, Any]]:
        width, steps, on = 400, 2, self.device
        seed = torch.tensor([3], device=on)
        mean, std = (part[None] for part in planning.rest(steps, 0.05, device=on))
        norm, cost = torch.full((1,), 0.05, device=on), self.random(1, width)
        momentum = planning.Momentum(*(torch.full((1,), 0.15, device=on) for _ in range(4)))
        noise = planning.normals(seed, seed, steps, width)
        actions, pose = planning.propose(noise, mean, std, norm), self.random(1, ACTION)
        works: dict[str, Work] = {
            "move": lambda: move(pose, actions[:, 0, 0]),
            "move, 400 samples": lambda: move(pose[:, None], actions[:, 0]),
            "propose": lambda: planning.propose(planning.normals(seed, seed, steps, width), mean, std, norm),
            "refine": lambda: planning.refine(actions, cost, mean, std, momentum, 10),
        }
        return [{"work": name, **self.timed(work, 1)} for name, work in works.items()]

    def products(self) -> list[dict[str, Any]]:
        if not self.cuda:
            return []
        encoder, predictor = self.model.encoder, self.model.predictor
        networks = {
            "encoder": (encoder.blocks, self.config.patches),
            "predictor": (predictor.predictor_blocks, self.config.tokens),
        }
        return [
            {"of": name, "product": what, "fitted us": fitted, "library us": library}
            for name, (blocks, rows) in networks.items()
            for compared in (self.normed_products, self.added_products)
            for what, fitted, library in compared([cast(Vjepa2Block, block).weights() for block in blocks], rows)
        ]

    def normed_products(self, layers: Sequence[EncoderWeights], rows: int) -> Iterator[tuple[str, float, float]]:
        """Microseconds by both, with the norm before them."""
        stream = self.random(rows, len(layers[0].out.weight)).to(self.dtype)
        sums = row_sums(stream)
        normed = {
            "qkv": [(one.norm, one.qkv[0], cast(Tensor, one.qkv[1])) for one in layers],
            "fc1": [(one.mlp_norm, one.fc1.weight, one.fc1.bias) for one in layers],
        }
        for what, maps in normed.items():
            gelu = what == "fc1"
            exact = [
                (weight, bias.float(), Norm(sums, weight.float().sum(1), norm.eps), _cut(rows, weight))
                for norm, weight, bias in maps
            ]

            def fitted(given: Any = exact, gelu: bool = gelu) -> None:
                for one in given:
                    mapped(stream, *one, gelu=gelu)

            def library(given: Any = maps, gelu: bool = gelu) -> None:
                for norm, weight, bias in given:
                    product(shifted_norm(stream, None, norm), weight, bias, activation="gelu" if gelu else None)

            yield what, *(self.timed(work, len(layers))["us a layer"] for work in (fitted, library))

    def added_products(self, layers: Sequence[EncoderWeights], rows: int) -> Iterator[tuple[str, float, float]]:
        """Microseconds by both, with the sum behind them."""
        stream = self.random(rows, len(layers[0].out.weight)).to(self.dtype)
        wide = self.random(rows, layers[0].fc2.in_features).to(self.dtype)
        adding = {"out": (stream, [one.out for one in layers]), "fc2": (wide, [one.fc2 for one in layers])}
        for what, (x, linears) in adding.items():
            weights = [(one.weight, one.bias.float()) for one in linears]

            def adds(x: Tensor = x, given: Any = weights) -> None:
                for weight, bias in given:
                    added(x, weight, bias, stream, _cut(rows, weight))

            def sums_up(x: Tensor = x, given: Any = weights) -> None:
                for weight, _ in given:
                    product(x, weight, residual=stream)

            yield what, *(self.timed(work, len(layers))["us a layer"] for work in (adds, sums_up))

    def profile(self) -> list[dict[str, Any]]:
        if not self.cuda:
            return []
        pixels, given = self.random(1, 3, self.config.pixels, self.config.pixels), self.given(1)
        slot, wide = self.slot(1, 16, 1), self.slot(400, 1, 1)
        samples = (given[0], given[1].expand(400, -1)[None], given[2])
        works: dict[str, Work] = {
            "encoder": lambda: self.see(pixels),
            "step": lambda: self.predict.step(*given, slot),
            "400 samples": lambda: self.predict.step(*samples, wide),
        }
        return [row for name, work in works.items() for row in _profile(name, work)]

    # ── what it needs ──

    @property
    def frame(self) -> tuple[int, int]:
        return self.config.patches, self.config.encoder.width

    def random(self, *shape: int) -> Tensor:
        return torch.randn(shape, device=self.device)

    def given(self, batch: int) -> tuple[Tensor, Tensor, Tensor]:
        features = self.random(batch, *self.frame).to(self.dtype)
        return features, 0.05 * self.random(batch, ACTION), self.random(batch, ACTION)

    def slot(self, rows: int, frames: int, more: int) -> PagedSlot:
        """A cache of `rows` sequences that hold `frames` already, with room for `more`."""
        sizes, tokens = self.config.predictor, self.config.tokens
        pages = pages_for((frames + more) * tokens)
        shape = (sizes.layers, rows * pages * PAGE, sizes.heads, sizes.head_dim)
        k, v = (torch.empty(shape, device=self.device, dtype=self.dtype).normal_() for _ in range(2))
        whole = torch.randperm(rows * pages, device=self.device).int().view(rows, pages)
        each = torch.arange(rows, device=self.device, dtype=torch.int32)
        lengths, positions = torch.full_like(each, frames * tokens), torch.full_like(each, frames)
        return PagedSlot(k.unbind(), v.unbind(), PagedRows(each, whole, lengths, positions))

    def on(self, slot: PagedSlot, frames: int = 1) -> None:
        slot.rows.lengths.add_(frames * self.config.tokens)
        slot.rows.positions.add_(frames)

    def timed(self, work: Work, layers: int, *, captured: bool = True) -> dict[str, Any]:
        """Milliseconds of one replay (or call), and microseconds a layer."""
        if not self.cuda:
            began = time.perf_counter()
            work()
            spent = time.perf_counter() - began
            return {"ms": 1e3 * spent, "us a layer": 1e6 * spent / layers}
        for _ in range(2):
            work()
        torch.cuda.synchronize()
        began = time.perf_counter()
        replay = as_graph(work) if captured else work
        torch.cuda.synchronize()
        spent = time.perf_counter() - began
        once = elapsed(replay, 1)[0]
        times = elapsed(replay, max(5, min(50, int(1500 / max(once, 0.01)))))
        found = {"ms": statistics.median(times), "p5": common.spread(times)["p5"]}
        capture = {"capture s": spent} if captured else {}
        return {**found, "us a layer": 1e3 * found["ms"] / layers, **capture}

    def reset(self) -> None:
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, float]:
        return {"peak GB": torch.cuda.max_memory_allocated() / 1e9} if self.cuda else {}


def _cut(rows: int, weight: Tensor) -> Cut:
    return cast(Cut, choose(rows, *weight.shape))


def _apart(what: str, exact: Tensor, ours: Tensor, rough: Tensor) -> dict[str, Any]:
    """Relative distances to the exact answer: of what is served, and of the plain network in its type."""
    scale = exact.float().norm()
    found = {"what": what, "served": float((ours.float() - exact).norm() / scale)}
    return {
        **found,
        "plain": float((rough.float() - exact).norm() / scale),
        "largest": float((ours - exact).abs().max()),
    }


def _profile(what: str, work: Work, most: int = 9) -> Sequence[dict[str, Any]]:
    from torch.profiler import ProfilerActivity, profile

    for _ in range(2):
        work()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            work()
        torch.cuda.synchronize()
    kernels = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)
    return [
        {"of": what, "ms": one.self_device_time_total / 3e3, "launches": one.count // 3, "kernel": one.key[:110]}
        for one in kernels[:most]
    ]


if __name__ == "__main__":
    main()
