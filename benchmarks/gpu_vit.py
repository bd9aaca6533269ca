"""Measures BAGEL's vision encoder for pictures of 980x980 (4900 patches), by its parts, on one GPU.

    python benchmarks/gpu_vit.py --out vit.json

The first table has one layer's attention: the encoder's, by FlashInfer's kernel with heads of 72 numbers padded to 128;
the cost of the padding; torch's, by backend; and the first call of a new length, which every new picture shape causes.
The next ones have one layer's products and the whole encoder with its connector: one picture, four, and pictures of
several shapes, launched by the host as in the engine, and replayed as a graph, which shows the cost of the host.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common

from walkgraph.architectures.siglip_navit import SiglipLayer, SiglipNavit
from walkgraph.layers.attention.dense_attention import BlockAttend, dense_attention
from walkgraph.layers.kernels.encoder_attention import fill
from walkgraph.layers.norm.layer_norm import added_norm
from walkgraph.layers.pictures.patches import grid_ids
from walkgraph.models.bagel.config import BAGEL_7B_MOT

VIT = BAGEL_7B_MOT.vit
HEADS, WIDTH, ROWS = VIT.heads, VIT.width // VIT.heads, 4900
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "torch flash": SDPBackend.FLASH_ATTENTION}
Work = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    with torch.inference_mode():
        attention = attentions()
        common.show(f"attention of one layer, {ROWS} patches", attention)
        with torch.device("cuda"):
            model = SiglipNavit(VIT).to(torch.bfloat16)
        model.pack()
        layer = layers(model)
        common.show("one layer", layer)
        whole = encoders(model)
    common.show("all layers", whole)
    common.write(given.out, "cuda", {"attention": attention, "layer": layer, "encoder": whole})


def attentions() -> list[dict[str, Any]]:
    qkv = torch.randn(ROWS, 3 * HEADS * WIDTH, device="cuda", dtype=torch.bfloat16)
    q, k, v = (part.unflatten(1, (HEADS, WIDTH)) for part in qkv.chunk(3, 1))
    flops = 4 * ROWS**2 * HEADS * WIDTH
    exact = dense_attention(q[None].float(), k[None].float(), v[None].float())[0]
    rows: list[dict[str, Any]] = []

    def row(name: str, work: Callable[[], Tensor], fresh: float | None = None) -> None:
        try:
            wrong = float((work().float() - exact).abs().max())
            ms = per_graph(work)
        except Exception as raised:  # noqa: BLE001 - whatever a compiler raises is a result
            rows.append({"kernel": name, "error": f"{type(raised).__name__}: {raised}"[:80]})
            return
        rows.append({"kernel": name, "ms": ms, "TFLOP/s": flops / ms / 1e9, "wrong by": wrong, "first call ms": fresh})

    attend = BlockAttend([ROWS])
    row("encoder's", lambda: attend(0, q, k, v), first_call(lambda *heads: BlockAttend([len(heads[0])])(0, *heads)))
    wide = [torch.zeros(ROWS, HEADS, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    at = torch.arange(ROWS, device="cuda")
    rows.append({"kernel": "of which filling", "ms": per_graph(lambda: fill((q, k, v), wide, at))})
    for name, backend in BACKENDS.items():
        row(
            name,
            lambda backend=backend: dense(q, k, v, backend),
            first_call(lambda q, k, v, backend=backend: dense(q, k, v, backend)),
        )
    return rows


def dense(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend) -> Tensor:
    with sdpa_kernel(backend):
        return dense_attention(q[None], k[None], v[None])[0]


def first_call(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> float | None:
    """Milliseconds of the first call with a number of patches that was not seen before: the median of some."""
    times: list[float] = []
    for rows in (3500, 3430, 3360):
        qkv = torch.randn(rows, 3 * HEADS * WIDTH, device="cuda", dtype=torch.bfloat16)
        heads = [part.unflatten(1, (HEADS, WIDTH)) for part in qkv.chunk(3, 1)]
        torch.cuda.synchronize()
        begun = time.perf_counter()
        try:
            attend(*heads)
        except RuntimeError:
            return None
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begun))
    return sorted(times)[1]


def layers(model: SiglipNavit) -> list[dict[str, Any]]:
    """The parts of a layer, as it runs them."""
    layer = cast(SiglipLayer, model.vision_model.encoder.layers[0])
    attention, mlp = layer.self_attn, layer.mlp
    x = torch.randn(ROWS, VIT.width, device="cuda", dtype=torch.bfloat16)
    hidden = torch.randn(ROWS, VIT.hidden, device="cuda", dtype=torch.bfloat16)
    qkv = cast(tuple[Tensor, Tensor], attention.packed)
    attend = BlockAttend([ROWS])
    heads = [part.unflatten(1, (HEADS, WIDTH)) for part in F.linear(x, *qkv).chunk(3, 1)]
    square = 2 * ROWS * VIT.width
    parts: dict[str, tuple[Work, float]] = {
        "norm": (lambda: added_norm(x, None, layer.layer_norm1), 0),
        "sum, norm": (lambda: added_norm(x, x, layer.layer_norm1), 0),
        "norm of torch": (lambda: layer.layer_norm1(x), 0),
        "q k v": (lambda: F.linear(x, *qkv), 3 * square * VIT.width),
        "attention": (lambda: attend(0, *heads), 4 * ROWS**2 * VIT.width),
        "out": (lambda: attention.out_proj(x), square * VIT.width),
        "residual": (lambda: x + x, 0),
        "mlp": (lambda: mlp(x), 2 * square * VIT.hidden),
        "mlp, gelu apart": (
            lambda: mlp.fc2(F.gelu(mlp.fc1(x), approximate="tanh")),
            2 * square * VIT.hidden,
        ),
        "fc2": (lambda: mlp.fc2(hidden), square * VIT.hidden),
        "layer": (lambda: layer(0, x, attend), 0),
    }
    rows: list[dict[str, Any]] = []
    for name, (work, flops) in parts.items():
        ms = per_graph(work)
        rows.append({"part": name, "ms": ms, "TFLOP/s": flops / ms / 1e9 if flops else None, "times 26": 26 * ms})
    return rows


def encoders(model: SiglipNavit) -> list[dict[str, Any]]:
    pictures = {
        "980x980": [(70, 70)],
        "4 of 980x980": [(70, 70)] * 4,
        "980x980, 980x742, 560x980, 224x224": [(70, 70), (53, 70), (70, 40), (16, 16)],
    }
    rows: list[dict[str, Any]] = []
    for name, sizes in pictures.items():
        counts = [height * width for height, width in sizes]
        patches = torch.randn(sum(counts), 3 * VIT.patch**2, device="cuda", dtype=torch.bfloat16)
        ids = torch.cat([grid_ids(*size, VIT.side, device=patches.device) for size in sizes])

        def work(attend: BlockAttend, patches: Tensor = patches, ids: Tensor = ids) -> Tensor:
            return model.vision_model(patches, ids, attend)

        flops = sum(VIT.layers * (2 * n * (4 * VIT.width + 2 * VIT.hidden) + 4 * n * n) * VIT.width for n in counts)
        ms = launched(lambda counts=counts, work=work: work(BlockAttend(counts)))
        attend = BlockAttend(counts)
        replayed = per_graph(lambda attend=attend, work=work: work(attend), 1)
        rows.append({"pictures": name, "ms": ms, "graph ms": replayed, "TFLOP/s": flops / ms / 1e9})
    return rows


def launched(work: Work, rounds: int = 7) -> float:
    """Milliseconds until the device is done: the median."""
    times: list[float] = []
    for _ in range(rounds + 2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begun))
    return sorted(times[2:])[rounds // 2]


def per_graph(work: Work, calls: int = 8, rounds: int = 5) -> float:
    """Milliseconds of one call: the median over replays of several."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            work()
    graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    times = sorted(a.elapsed_time(b) / calls for a, b in itertools.pairwise(events))
    graph.reset()
    return times[rounds // 2]


if __name__ == "__main__":
    main()
