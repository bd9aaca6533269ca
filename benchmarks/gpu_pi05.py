"""Measures full-size pi0.5 with random weights on one GPU: its fast forms against plain float32, and the time of its
parts.

    python benchmarks/gpu_pi05.py [--out FILE] [--skip served] [--check]

`parity`: keys and values of a prefix of three cameras and 200 tokens, and velocities at several times, each from the
same noised actions, by the forms that are served (16 bits), and by the plain form in 16 bits; both against the plain
form in float32 of the same weights. `parts`: vision, prefix and flow step separately, launched and captured, and where
their time goes. `served`: requests of the bundled graph through an engine, one and eight at a time. `--check` runs the
tiny model, also on a CPU, and writes nothing.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import _common as common

from tests.support.local import LocalDeployment
from walkgraph.abi.states import CacheShape
from walkgraph.engine.device.outside import FIRSTHAND
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.graph import codec
from walkgraph.layers.attention.dense_attention import KV
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.flow.flow_head import FlowInterval
from walkgraph.models.pi05.expert import ExpertRows
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.operators import random_pi05
from walkgraph.models.pi05.prefix import PrefixRows, embedded
from walkgraph.models.pi05.presets import PI05
from walkgraph.placement.document import decode

ROOT = Path(__file__).resolve().parents[1]
TIMES = (1.0, 0.5, 0.1)
HORIZON, TEXT, CAMERAS = 50, 200, 3
LINE = ("put the small red block into the drawer on the left, close the drawer, and then " * 2)[:143]
Report = dict[str, Any]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--skip", nargs="*", default=(), choices=("parity", "parts", "served"))
    arguments.add_argument("--check", action="store_true", help="run only the tiny model, as a test")
    given = arguments.parse_args()
    device = _device()
    name = "pi05-tiny" if given.check else "pi05-base"
    report: Report = {"model": name}
    with torch.inference_mode():
        begun = time.monotonic()
        model = random_pi05(PI05[name], 0, device=device, dtype=_dtype(device))
        report["drawn s"] = time.monotonic() - begun
        print("drawn", report["drawn s"], flush=True)
        for what, measure in (("parity", parity), ("parts", partial(parts, least=given.check))):
            _tried(report, given, what, partial(measure, model))
        del measure, model
    _tried(report, given, "served", partial(served, name, device, rounds=2 if given.check else 12))


def _tried(report: Report, given: argparse.Namespace, what: str, measure: Callable[[], Report]) -> None:
    if what in given.skip:
        return
    begun = time.monotonic()
    try:
        report[what] = measure()
    except Exception:  # noqa: BLE001 (what fails is told, and the rest is measured)
        report[what] = {"error": traceback.format_exc()}
        print(report[what]["error"], flush=True)
    report[what]["seconds"] = time.monotonic() - begun
    print(what, json.dumps(report[what], indent=1), flush=True)
    common.write(None if given.check else given.out, _device().type, report)


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _dtype(device: torch.device) -> torch.dtype:
    return torch.bfloat16 if device.type == "cuda" else torch.float32


# ── what is served, by itself ───────────────────────────────────────────────────────────────────


class Seen(NamedTuple):
    cameras: list[Tensor]
    ids: Tensor
    noise: Tensor

    @classmethod
    def drawn(cls, model: Pi05, seed: int) -> Seen:
        config, dice = model.config, torch.Generator("cpu").manual_seed(seed)
        coarse = torch.rand(CAMERAS, 3, 8, 8, generator=dice) * 2 - 1
        pixels = F.interpolate(coarse, (config.picture, config.picture), mode="bicubic").clamp(-1, 1)
        ids = torch.randint(0, min(256, config.vocab), (TEXT,), generator=dice)
        noise = torch.randn(HORIZON, config.action_width, generator=dice)
        device = model.projector.weight.device
        return cls([*pixels.to(device).split(1)], ids.to(device), noise.to(device))


class Packed:
    """Prefixes of equal lengths in a pool, one after the other, attended as those of captured forwards are."""

    def __init__(self, model: Pi05, pool: Pool, count: int, tokens: int) -> None:
        self.k: Sequence[Tensor] = pool.k
        self.v: Sequence[Tensor] = pool.v
        each = -(-tokens // PAGE) * PAGE
        starts = PAGE + torch.arange(count, device=pool.device)[:, None] * each
        self.slots = (starts + torch.arange(tokens, device=pool.device)).flatten()
        bounds = torch.arange(count + 1, dtype=torch.int32, device=pool.device) * tokens
        self._blocks = PackedBlocks(bounds, count * tokens, model.config.heads)
        self.held = [
            ContextSequence(range(1 + row * each // PAGE, 1 + (row + 1) * each // PAGE), tokens, tokens, row)
            for row in range(count)
        ]

    def __call__(self, layer: int, q: Tensor) -> Tensor:
        return self._blocks.paged(q, self.k[layer], self.v[layer], self.slots)


def pool_of(model: Pi05, count: int, tokens: int) -> Pool:
    config, weight = model.config, model.projector.weight
    shape = CacheShape(layers=config.layers, kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=weight.dtype)
    return Pool(shape, count * -(-tokens // PAGE), weight.device)


def room_of(pool: Pool, held: Sequence[ContextSequence]) -> DenseContext:
    room = DenseContext(pool, len(held), HORIZON, capacity_for([row.length for row in held], len(held), HORIZON))
    room.place(held)
    return room


# ── parity ──────────────────────────────────────────────────────────────────────────────────────


def parity(model: Pi05) -> Report:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    seen = Seen.drawn(model, 1)
    exactly = plain(exact(model), seen)
    torch.cuda.empty_cache()
    rows = {"plain in 16 bits": plain(model, seen), "as served": fast(model, seen)}
    return {how: {what: _apart(got[what], wanted) for what, wanted in exactly.items()} for how, got in rows.items()} | {
        "numbers": {what: float(wanted.std()) for what, wanted in exactly.items()}
    }


def exact(model: Pi05) -> Pi05:
    """The same weights in float32."""
    with torch.device("meta"):
        copy = Pi05(model.config)
    copy.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()}, assign=True)
    return copy.eval()


def plain(model: Pi05, seen: Seen) -> dict[str, Tensor]:
    x, _ = model.laid(seen.cameras, seen.ids[None], None)
    prefix = model.read(x)
    found = {"embeddings": x[0], **_caches([(k[0], v[0]) for k, v in prefix.kv])}
    for at in TIMES:
        times = torch.tensor([at], device=x.device)
        found[f"velocity {at}"] = model.denoise(seen.noise[None], model.modulations(times), prefix)[0]
    return {name: value.float() for name, value in found.items()}


def fast(model: Pi05, seen: Seen) -> dict[str, Tensor]:
    tokens = CAMERAS * model.config.patches + TEXT
    pool = pool_of(model, 1, tokens)
    to, expert = Packed(model, pool, 1, tokens), ExpertRows(model)
    x = embedded(model, [[*model.see(torch.cat(seen.cameras))]], [seen.ids])
    found = {"embeddings": x.clone()}
    PrefixRows(model).read(x, torch.arange(tokens, device=x.device), to)
    found |= _caches([(k[to.slots], v[to.slots]) for k, v in zip(pool.k, pool.v, strict=True)])
    room = room_of(pool, to.held)
    for at, table in zip(TIMES, expert.tables(torch.tensor(TIMES, device=x.device)), strict=True):
        way = FlowInterval(*torch.tensor([[1.0], [0.0]], device=x.device))
        found[f"velocity {at}"] = seen.noise - expert.step(seen.noise[None], table[None], way, room)[0]
    return {name: value.float() for name, value in found.items()}


def _caches(kv: Sequence[KV]) -> dict[str, Tensor]:
    layers = sorted({0, len(kv) // 2, len(kv) - 1})
    return {f"{part} of layer {at}": kv[at]["kv".index(part)] for at in layers for part in "kv"}


def _apart(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm())


# ── parts ───────────────────────────────────────────────────────────────────────────────────────


def parts(model: Pi05, *, least: bool) -> Report:
    """`least`: of one robot alone."""
    found: Report = {"vision us": {str(n): timed(_see(model, n)) for n in ((1,) if least else (1, 2, 3, 8, 24))}}
    print(found["vision us"], flush=True)
    for count in (1,) if least else (1, 2, 8):
        found[f"prefix of {count} us"] = _prefix_times(model, count)
        print(count, found[f"prefix of {count} us"], flush=True)
    for count in (1,) if least else (1, 8, 16):
        found[f"ten steps of {count} us"] = _loop_times(model, count)
        print(count, found[f"ten steps of {count} us"], flush=True)
    expert = ExpertRows(model)
    times = 1 - torch.arange(10, device=model.projector.weight.device) / 10
    found["tables of ten us"] = _wall(lambda: expert.tables(times))
    return found


def _see(model: Pi05, count: int) -> Callable[[], object]:
    side = model.config.picture
    pixels = torch.zeros(count, 3, side, side, device=model.projector.weight.device)
    return lambda: model.see(pixels)


def _prefix_times(model: Pi05, count: int) -> Report:
    tokens = CAMERAS * model.config.patches + TEXT
    pool, rows = pool_of(model, count, tokens), PrefixRows(model)
    to, weight = Packed(model, pool, count, tokens), model.projector.weight
    x = torch.randn(count * tokens, weight.shape[0], device=weight.device).to(weight.dtype)
    positions = torch.arange(tokens, device=weight.device).repeat(count)
    return timed(lambda: rows.read(x.clone(), positions, to))


def _loop_times(model: Pi05, count: int) -> Report:
    tokens, config, device = CAMERAS * model.config.patches + TEXT, model.config, model.projector.weight.device
    pool, expert = pool_of(model, count, tokens), ExpertRows(model)
    room = room_of(pool, Packed(model, pool, count, tokens).held)
    tables = expert.tables(1 - torch.arange(10, device=device) / 10)
    noise = torch.randn(count, HORIZON, config.action_width, device=device)
    way = FlowInterval(*torch.tensor([[0.1], [0.0]], device=device).expand(-1, count))

    def loop() -> Tensor:
        x = noise
        for table in tables:
            x = expert.step(x, table.expand(count, -1), way, room)
        return x

    return timed(loop)


def timed(work: Callable[[], object]) -> Report:
    """Microseconds launched one by one, and captured; the kernels that take most of the former."""
    for _ in range(3):
        work()
    found: Report = {"launched": _wall(work)}
    if not torch.cuda.is_available():
        return found
    try:
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            work()
        found["captured"] = _wall(graph.replay)
    except RuntimeError as error:
        found["captured"] = str(error).splitlines()[0]
    found["kernels"] = _kernels(work)
    return found


def _wall(work: Callable[[], object], rounds: int = 20) -> float:
    """Median microseconds, host and device."""
    taken: list[float] = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(1e6 * (time.perf_counter() - begun))
    return round(sorted(taken)[len(taken) // 2], 1)


def _kernels(work: Callable[[], object], most: int = 10) -> dict[str, str]:
    """Name -> microseconds in all, and calls."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda event: -event.device_time_total)
    return {event.key[:90]: f"{event.device_time_total:.0f} us, {event.count}" for event in events[:most]}


# ── served ──────────────────────────────────────────────────────────────────────────────────────


def served(name: str, device: torch.device, rounds: int) -> Report:
    document = json.loads((ROOT / "graphs" / "pi05.json").read_text())
    document["weights"]["pi05"]["source"] = f"random:{name}:0"
    placement = {
        "format": "walkgraph/placement@1",
        "name": "one",
        "groups": [{"nodes": ["*"], "ranks": [0]}],
        "ranks": [{"rank": 0, "device": "cuda:0" if device.type == "cuda" else "cpu"}],
    }
    found: Report = {}
    begun = time.monotonic()
    local = LocalDeployment(codec.load(document), decode(placement), threads=1, kv_bytes=1 << 30, outside=FIRSTHAND)
    found["load and warm-up s"] = time.monotonic() - begun
    print("loaded", found, flush=True)
    begun = time.monotonic()
    for rank, engine in local.engines.items():
        for loop in local.cores[rank].loops():
            engine.prepare(loop, lambda _what, _done: None)
    found["loops captured s"] = time.monotonic() - begun
    print("captured", found, flush=True)
    for robots in (1, 8):
        found[f"{robots} at once"] = _answered(local, robots, rounds)
        print(robots, found[f"{robots} at once"], flush=True)
    return found


def _answered(local: LocalDeployment, robots: int, rounds: int) -> Report:
    taken: list[float] = []
    busy: dict[str, list[float]] = {}
    for turn in range(rounds):
        runs = [f"{robots}-{turn}-{robot}" for robot in range(robots)]
        begun = time.perf_counter()
        for robot, run in enumerate(runs):
            local.submit(run, "act", {"horizon": HORIZON, "steps": 10, "seed": robot}, _asked())
        local.run()
        taken.append(time.perf_counter() - begun)
        if local.failed:
            raise RuntimeError(f"runs failed: {local.failed}")
        for one in local.times[runs[0]]:
            busy.setdefault(one.node, []).append(one.busy)
        for run in runs:
            local.release(run)
    of = {node: round(1e3 * sorted(each)[len(each) // 2], 3) for node, each in busy.items()}
    return {"ms": round(1e3 * sorted(taken)[len(taken) // 2], 3), "first ms": round(1e3 * taken[0], 3), "busy ms": of}


def _asked() -> dict[str, list[Any]]:
    buffer = io.BytesIO()
    coarse = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize((224, 224), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=92)
    cameras = {name: [buffer.getvalue()] for name in ("base", "left_wrist", "right_wrist")}
    return {**cameras, "instruction": [LINE], "state": [torch.linspace(-1, 1, 8)]}


if __name__ == "__main__":
    main()
