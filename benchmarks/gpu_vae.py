"""Measures time and memory of BAGEL's autoencoder on one GPU: float32 and bfloat16, eager and captured.

    python benchmarks/gpu_vae.py --out gpu_vae.json [--sides 512 1024] [--seconds 0.3] [--plain] [--parts]

The plain network in float32 (convolutions with TF32, torch's default, and without) is compared with the packed one that
is served. `tuned` lets cuDNN try its algorithms. Errors are those of the packed network's outputs against the plain one
in float32: relative, and in decibels of a picture's 8-bit levels. Memory is the maximum of one call above the weights.
`--parts` measures the parts for a 1024 by 1024 picture: variants of upsampling, attention and the last layer; the
kernels of a decode; and previews.
"""

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

from _common import show, write

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.flux_vae_packed import PackedVae
from walkgraph.architectures.latent_preview import LatentPreview
from walkgraph.layers.norm.group_norm import add_norm, added
from walkgraph.layers.norm.picture_sum import GroupNormWeights, PictureSum
from walkgraph.layers.pictures.pixels import few_channels, one_head
from walkgraph.models.bagel.config import BAGEL_7B_MOT

DEVICE = torch.device("cuda")
BF16 = torch.bfloat16
Work = Callable[[], Any]


def timed(work: Work, seconds: float) -> float:
    """Median milliseconds of one call."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    times: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times) < 3:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def captured(work: Callable[[], Tensor]) -> tuple[Work, Tensor]:
    """(what replays it, the tensor that it writes)"""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
        work()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        made = work()
    return graph.replay, made


def memory(work: Work) -> float:
    """MiB that one call takes at most, above what is there."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def errors(made: Tensor, wanted: Tensor, *, picture: bool) -> dict[str, float]:
    off = float((made - wanted).norm() / wanted.norm())
    if not picture:
        return {"error": off}
    a, b = ((one * 0.5 + 0.5).clamp(0, 1) * 255 for one in (made, wanted))
    return {"error": off, "dB": 10 * math.log10(255**2 / float((a - b).square().mean()))}


def measure(plain: AutoEncoder, packed: PackedVae, side: int, seconds: float, *, both: bool) -> list[dict[str, Any]]:
    generator = torch.Generator(DEVICE).manual_seed(side)
    z = torch.randn(1, 16, side // 8, side // 8, device=DEVICE, generator=generator)
    small = torch.rand(1, 3, side // 8, side // 8, device=DEVICE, generator=generator) * 2 - 1
    picture = F.interpolate(small, size=(side, side), mode="bicubic").clamp(-1, 1)
    rows: list[dict[str, Any]] = []
    for what, given in (("decode", z), ("encode", picture)):
        old, new = getattr(plain, what), getattr(packed, what)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            wanted = old(given)
            row = {"what": what, "side": side}
            if both:
                exact = timed(lambda old=old, given=given: old(given), seconds)
                mib = memory(lambda old=old, given=given: old(given))
                rows.append({**row, "how": "float32 eager", "ms": exact, "MiB": mib})
        if both:
            rows.append({**row, "how": "TF32 eager", "ms": timed(lambda old=old, given=given: old(given), seconds)})
        with FlopCounterMode(display=False) as counter:
            made = new(given)
        tera = counter.get_total_flops() / 1e12

        def work(new: Callable[[Tensor], Tensor] = new, given: Tensor = given) -> Tensor:
            return new(given)

        told = errors(made, wanted, picture=what == "decode")
        ms = timed(work, seconds)
        rows.append({**row, "how": "bfloat16 eager", "ms": ms, "TFLOP": tera, "MiB": memory(work), **told})
        for tuned in (False, True):
            with torch.backends.cudnn.flags(enabled=True, benchmark=tuned, allow_tf32=True):
                replay, made = captured(work)
                ms = timed(replay, seconds)
            told = errors(made, wanted, picture=what == "decode")
            how = "bfloat16 graph tuned" if tuned else "bfloat16 graph"
            rows.append({**row, "how": how, "ms": ms, "TFLOP/s": 1e3 * tera / ms, **told})
            del replay, made
    return rows


def parts(seconds: float) -> list[dict[str, Any]]:
    """Times of single layers for a 1024 by 1024 picture."""

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, device=DEVICE, dtype=BF16)

    def last(*shape: int) -> Tensor:
        return some(*shape).contiguous(memory_format=torch.channels_last)

    x, big, bias = last(1, 256, 512, 512), last(1, 128, 1024, 1024), torch.zeros(256, device=DEVICE)
    w3, w2, w4 = last(256, 256, 3, 3), last(1024, 256, 2, 2), last(256, 256, 4, 4)
    out3, q = some(3, 128, 3, 3), some(1, 128 * 128, 512)
    ones = torch.ones(128, device=DEVICE)
    norm = GroupNormWeights(32, ones, ones, 1e-6)
    wide = last(128, 128, 3, 3)
    ways: dict[str, Work] = {
        "up: doubled, then 3x3": lambda: F.conv2d(F.interpolate(x, scale_factor=2.0), w3, padding=1),
        "up: phases of 2x2": lambda: F.conv2d(x, w2, padding=1),
        "up: phases, put together": lambda: added(PictureSum(F.conv2d(x, w2, padding=1), bias, phases=True)),
        "up: transposed 4x4": lambda: F.conv_transpose2d(x, w4, stride=2, padding=1),
        "3x3 of 128 at 1024": lambda: F.conv2d(big, wide, padding=1),
        "sum of two, norm": lambda: add_norm(PictureSum(big, norm.bias, big), norm),
        "norm alone": lambda: add_norm(PictureSum(big, norm.bias), norm, keep=False),
        "sum of two": lambda: added(PictureSum(big, norm.bias, big)),
        "attention in pieces": lambda: one_head(q, q, q),
        "attention of torch": lambda: F.scaled_dot_product_attention(q[:, None], q[:, None], q[:, None]),
        "last: taps": lambda: few_channels(big, out3, norm.bias[:3]),
        "last: convolution": lambda: F.conv2d(big, out3, padding=1).float(),
    }
    return [{"part": name, "ms": timed(work, seconds)} for name, work in ways.items()]


def previews(packed: PackedVae, seconds: float) -> list[dict[str, Any]]:
    """Fitting one, the second time, and painting one of a 1024 by 1024 picture."""
    rows: list[dict[str, Any]] = []
    z = torch.randn(1, 16, 128, 128, device=DEVICE)
    for detail in (1, 2, 8):
        took = 0.0
        for _ in range(2):
            start = time.perf_counter()
            preview = LatentPreview.fitted(packed, detail, 128, DEVICE)
            torch.cuda.synchronize()
            took = time.perf_counter() - start
        replay, _ = captured(lambda preview=preview: preview(z))
        rows.append({"preview": f"{128 * detail} pixels", "fit, ms": 1e3 * took, "paint, ms": timed(replay, seconds)})
    return rows


def kernels(packed: PackedVae, side: int) -> list[dict[str, Any]]:
    """Milliseconds of a decode by kernel, the longest first."""
    z = torch.randn(1, 16, side // 8, side // 8, device=DEVICE)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        packed.decode(z)
        torch.cuda.synchronize()
    found = sorted(profile.key_averages(), key=lambda one: -one.self_device_time_total)[:18]
    return [{"kernel": one.key[:90], "calls": one.count, "ms": one.self_device_time_total / 1e3} for one in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sides", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per timing")
    parser.add_argument("--plain", action="store_true", help="time the plain network too")
    parser.add_argument("--parts", action="store_true")
    options = parser.parse_args()
    result: dict[str, Any] = {}
    with torch.inference_mode():
        plain = drawn(lambda: AutoEncoder(BAGEL_7B_MOT.vae), 0, device=DEVICE, dtype=torch.float32)
        packed = PackedVae(plain, BF16)
        result["rows"] = [
            row for side in options.sides for row in measure(plain, packed, side, options.seconds, both=options.plain)
        ]
        show("a call", result["rows"])
        if options.parts:
            result["parts"] = parts(options.seconds)
            result["kernels"] = kernels(packed, max(options.sides))
            result["previews"] = previews(packed, options.seconds)
            for name in ("parts", "kernels", "previews"):
                show(name, result[name])
    write(options.out, DEVICE.type, result)


if __name__ == "__main__":
    main()
