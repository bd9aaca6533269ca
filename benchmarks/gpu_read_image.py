"""Measures BAGEL's first token for a picture by the engine alone: patches in, one token out, and where the time goes.

    python benchmarks/gpu_read_image.py --out read.json [--rounds 5] [--plain] [--check]

One picture of 980x980 (4900 patches, 4902 rows of the backbone) and a question of 24 tokens, on an otherwise idle GPU:
the encoder, the picture's rows and the question's rows are called one after the other, as in a graph, and each result
is awaited. `floor` is the time of the products and the attention at 790 and 650 TFLOP/s. The next tables have four
pictures of four runs together, the kernels of one picture by GPU time, and the products of the backbone's rows alone.
`--check` runs the tiny model for a moment.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from _common import show, spread, write
from _runtime import RANK, Phases, bundled_graph, device_name, placed
from engine_step import ended, only

from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.engine import Done, Engine
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.presets import bagel_config

QUESTION = 24
PRODUCTS, ATTENTION = 790e12, 650e12
GREEDY = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "time": 0.0}


class Reader:
    """The encoder and the backbone in one engine."""

    def __init__(self, name: str, device: str, *, captured: bool = True) -> None:
        self.config, self.device, self._runs = bagel_config(name), device, 0
        plan = placed(bundled_graph("bagel", {"bagel": f"random:{name}:0"}), device, kv_bytes=4 << 30)
        # Prompts and pictures are the same every time, and reading them is measured.
        self.engine = Engine(only(plan, ("vit_encoder", "llm")), RANK, prefix_cache=False, capture=captured)
        self.engine.load(Phases())
        vit = self.config.vit
        side = min(vit.side, self.config.vit_pictures.max_side // vit.patch) * vit.patch
        self.pixels = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
        self.pixels = self.pixels.to(device)
        self.ids = torch.arange(QUESTION) + 5

    def read(self, count: int) -> dict[str, float]:
        """Seconds of every part, `count` pictures of as many runs at once."""
        runs = [f"run{self._runs + i}" for i in range(count)]
        self._runs += count
        times: dict[str, float] = {}
        began = time.perf_counter()
        seen = self._timed("encoder", times, [("vit_encoder", run, {"pixels": self.pixels}) for run in runs])
        pictures = [("llm", run, {"image": seen[run]["embeddings"]}) for run in runs]
        self._timed("picture", times, pictures)
        first = self._timed("question", times, [("llm", run, {"ids": self.ids}) for run in runs])
        tokens = [int(first[run]["token"]) for run in runs]
        times["all"] = time.perf_counter() - began
        if min(tokens) < 0:
            raise RuntimeError(f"tokens {tokens}")
        for run in runs:
            self.engine.drop(run)
        return times

    def _timed(
        self, part: str, times: dict[str, float], wanted: Sequence[tuple[str, str, dict[str, Any]]]
    ) -> dict[str, dict[str, Any]]:
        began = time.perf_counter()
        for node, run, inputs in wanted:
            self.engine.add(self._call(node, run, inputs))
        found: dict[str, dict[str, Any]] = {}
        while not self.engine.idle:
            found |= {event.call.run: ended(event) for event in self.engine.step() if isinstance(event, Done)}
        times[part] = time.perf_counter() - began
        return found

    def _call(self, node: str, run: str, inputs: dict[str, Any]) -> Call:
        states = {"kv": StateKey(run, "main")} if node == "llm" else {}
        params = GREEDY if node == "llm" else {}
        return Call(
            run=run, node=node, walk="read", step=0, use=0, iteration=(), inputs=inputs, params=params, states=states,
            seed=0,
        )  # fmt: skip

    def kernels(self) -> list[dict[str, Any]]:
        from torch.profiler import ProfilerActivity, profile

        cuda = self.device.startswith("cuda")
        with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as trace:
            self.read(1)
        took = "self_device_time_total" if cuda else "self_cpu_time_total"
        found = sorted(((getattr(one, took), one.count, one.key) for one in trace.key_averages()), reverse=True)
        rows = [{"ms": us / 1e3, "calls": calls, "kernel": key[:100]} for us, calls, key in found if us]
        return [{"ms": sum(us for us, _, _ in found) / 1e3, "kernel": "all"}, *rows[:24]]


def floor(config: BagelConfig, patches: int) -> dict[str, float]:
    """Milliseconds of the encoder and of the picture's rows, which the last layer but reads."""
    vit, llm = config.vit, config.llm
    width = llm.width * llm.head_dim * (2 * llm.heads + 2 * llm.kv_heads) + 3 * llm.width * llm.hidden
    connector = llm.width * (vit.width + llm.width)
    encoder = 2 * patches * (vit.layers * vit.width * (4 * vit.width + 2 * vit.hidden) + connector) / PRODUCTS
    encoder += vit.layers * 4 * patches**2 * vit.width / ATTENTION
    picture = 2 * (patches + 2) * (llm.layers - 1) * width / PRODUCTS
    picture += (llm.layers - 1) * 4 * (patches + 2) ** 2 * llm.heads * llm.head_dim / ATTENTION
    return {"encoder": 1e3 * encoder, "picture": 1e3 * picture}


def products(config: BagelConfig, rows: int) -> list[dict[str, Any]]:
    """The time and speed of each product of one layer, for all rows at once and for this many."""
    llm = config.llm
    heads = llm.heads * llm.head_dim
    shapes = {
        "q k v": (llm.width, heads + 2 * llm.kv_heads * llm.head_dim),
        "o": (heads, llm.width),
        "gate up": (llm.width, 2 * llm.hidden),
        "down": (llm.hidden, llm.width),
    }
    found: list[dict[str, Any]] = []
    for count in (rows, -(-rows // 128) * 128):
        for name, (inner, outer) in shapes.items():
            x, weight = (torch.randn(n, inner, device="cuda", dtype=torch.bfloat16) for n in (count, outer))
            out = torch.empty(count, outer, device="cuda", dtype=torch.bfloat16)
            for cut in (count, 2048, 1024):
                pieces = list(zip(x.split(cut), out.split(cut), strict=True))
                ms = timed(lambda pieces=pieces, weight=weight: [torch.mm(a, weight.t(), out=b) for a, b in pieces])
                speed = 2 * count * inner * outer / ms / 1e9
                found.append({"rows": count, "at once": cut, "product": name, "ms": ms, "TFLOP/s": speed})
    return found


def timed(work: Callable[[], Any], calls: int = 10) -> float:
    """Milliseconds of one call on the device, launched one after the other."""
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="run the tiny model for a moment")
    parser.add_argument("--plain", action="store_true", help="also launch the question kernel by kernel")
    given = parser.parse_args()
    device = "cpu" if given.check else device_name()
    reader = Reader("bagel-tiny" if given.check else "bagel-7b-mot", device, captured=not given.plain)
    patches = (reader.pixels.shape[1] // reader.config.vit.patch) ** 2
    rows: list[dict[str, Any]] = []
    for count in (1, 4):
        # As often as FlashInfer's plans take turns.
        for _ in range(1 if given.check else 7):
            reader.read(count)
        rounds = [reader.read(count) for _ in range(given.rounds)]
        for part in rounds[0]:
            least = floor(reader.config, patches).get(part)
            told = spread([one[part] for one in rounds], 1e3)
            rows.append({"pictures": count, "part": part, "floor": least and count * least, **told})
    show(f"{patches} patches and a question, ms", rows)
    kernels = reader.kernels()
    show("the GPU's time of one picture, by kernel", kernels)
    report: dict[str, Any] = {"parts": rows, "kernels": kernels}
    if device.startswith("cuda"):
        with torch.inference_mode():
            report["products"] = products(reader.config, patches + 2)
        show("the backbone's products", report["products"])
    write(None if given.check else given.out, device, report)


if __name__ == "__main__":
    main()
