"""Measures Qwen3-Omni's vocoder on one GPU: chunks of streams, alone and together, launched and captured.

    python benchmarks/gpu_code2wav.py [--only PART ...] [--batches 1 4 16] [--out FILE] [--check]

Weights are random, at full size. `chunks`: 25 frames of each stream, inside it and at its beginning (five frames), in
bfloat16 and float32; milliseconds of a launch and of a replay, TFLOP/s, the time that its products take at 790 TFLOP/s
(float32: 60), how many times faster than it sounds, and the memory at most. `parity`: bfloat16 and captured against
float32, relative. `parts`: transformer, decoder, and the tails in and out. `convolutions`: each of the decoder alone,
at its place's length. `profile`: GPU time by kernel.
`--check` runs the tiny model, also on a CPU, and captures nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
import traceback
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))

import _common as common
from _timed import Work, timed

from walkgraph.abi.step import StepBatch
from walkgraph.layers.attention.sliding_window import WindowAttend
from walkgraph.layers.sound.causal_conv import CausalConv, MonoConv, Tails, packed
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav
from walkgraph.models.qwen3_omni.vocoder.operators import Code2wav
from walkgraph.models.qwen3_omni.vocoder.weights import random_vocoder

FIRST, FRAMES = 5, 25
START = 1000
"""Frames of a stream before a chunk inside it."""
SECOND = 12.5
"""Frames of a second of sound."""
PEAK = {torch.bfloat16: 790e12, torch.float32: 60e12}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    report: dict[str, Any] = {}
    with torch.inference_mode():
        bench = Bench([2] if given.check else given.batches, tiny=given.check)
        for part in (bench.chunks, bench.parity, bench.parts, bench.convolutions, bench.profile):
            if given.only and part.__name__ not in given.only:
                continue
            try:
                report[part.__name__] = part()
                common.show(part.__name__, report[part.__name__])
            except Exception:  # noqa: BLE001  one measurement's failure must not cost the others
                traceback.print_exc()
                sys.stdout.flush()
            common.write(given.out, bench.device.type, report)


class Bench:
    def __init__(self, batches: Sequence[int], *, tiny: bool) -> None:
        self.batches, self.cuda = batches, torch.cuda.is_available()
        self.first, self.frames = (1, 2) if tiny else (FIRST, FRAMES)
        self.device = torch.device("cuda" if self.cuda else "cpu")
        config = omni_config("qwen3-omni-tiny" if tiny else "qwen3-omni-30b-a3b").code2wav
        if config is None:
            raise ValueError("the preset has no vocoder")
        self.config = config
        self.model = random_vocoder(config, 0, device=self.device, dtype=torch.bfloat16)
        # The same numbers: those of the model served, which are rounded.
        self.exact = random_vocoder(config, 0, device=self.device, dtype=torch.float32)
        self.exact.load_state_dict({name: one.float() for name, one in self.model.state_dict().items()})
        packed(self.exact)

    # ── what is measured ──

    def chunks(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for model in (self.model, self.exact):
            for batch in self.batches:
                for frames, first in (self.frames, False), (self.first, True):
                    work = self.step(model, batch, frames, first=first)
                    self.reset()
                    eager, captured = timed(work, captured=False), timed(work)
                    flops, least = self.flops(batch, frames), PEAK[model.code_embedding.weight.dtype]
                    rows.append(
                        {
                            "type": str(model.code_embedding.weight.dtype).removeprefix("torch."),
                            "streams": batch,
                            "frames": frames,
                            "launched ms": eager,
                            "ms": captured,
                            "TFLOP/s": flops / captured / 1e9,
                            "floor ms": 1e3 * flops / least,
                            "times real time": 1e3 * batch * frames / SECOND / captured,
                            **self.peak(),
                        }
                    )
        return rows

    def parity(self) -> list[dict[str, Any]]:
        """A stream decoded in float32 at once, compared with its chunks by the step."""
        codes = self.codes(2, self.first + 2 * self.frames)
        start = torch.zeros(2, dtype=torch.int64, device=self.device)
        wanted, _ = self.exact.decode(codes, start, self.exact.fresh(2), first=True)
        rows: list[dict[str, Any]] = []
        for name, model in {"bfloat16": self.model, "float32": self.exact}.items():
            tables, parts = self.tables(model, 2), list[Tensor]()
            for at, frames in (0, self.first), (self.first, self.frames), (self.first + self.frames, self.frames):
                batch = self.batch(tables, codes[:, at : at + frames], at, first=at == 0)
                parts.append(Code2wav(model).step(batch).ports["waveform"].clone())
            off = torch.cat(parts, 1) - wanted
            relative = float(off.norm() / wanted.norm())
            rows.append({"what": name, "relative": relative, "largest": float(off.abs().max())})
        return rows

    def parts(self) -> list[dict[str, Any]]:
        """Times 25 frames inside a stream, in bfloat16."""
        rows: list[dict[str, Any]] = []
        model = self.model
        for batch in self.batches:
            codes = self.codes(batch, self.frames)
            state, start = model.fresh(batch), torch.full((batch,), START, device=self.device)
            x = model.code_embedding(codes).mean(2)
            wide = x.repeat_interleave(math.prod(self.config.ratios), 1)
            tables = self.tables(model, batch)
            at = torch.arange(batch, device=self.device)
            works: dict[str, Work] = {
                "transformer": lambda x=x, state=state, start=start, at=at: model.pre_transformer(
                    x.clone(), WindowAttend(state.window, at, start, self.frames, model.pre_transformer.rope)
                ),
                "decoder": lambda wide=wide, state=state: model.waveform(wide, Tails(state.tails), first=False),
                "tails": lambda tails=tables["tails"], at=at: tails.index_copy_(0, at, tails[at]),
            }
            rows += [{"streams": batch, "part": name, "ms": timed(work)} for name, work in works.items()]
        return rows

    def convolutions(self) -> list[dict[str, Any]]:
        """Times the decoder's convolutions over 25 frames, in bfloat16."""
        rows: list[dict[str, Any]] = []
        for batch in self.batches:
            places = self.frames * math.prod(self.config.ratios)
            rows.append(self.convolution("enter", self.model.decoder[0], batch, places))
            for rate, block in zip(self.config.rates, self.model.decoder[1:-2], strict=True):
                places *= rate
                rows += [self.convolution("unit", unit.conv1, batch, places) for unit in block.block[2:]]
            rows.append(self.convolution("leave", self.model.decoder[-1], batch, places))
        return rows

    def convolution(self, name: str, layer: CausalConv | MonoConv, batch: int, places: int) -> dict[str, Any]:
        channels, dilation = layer.conv.in_channels, layer.conv.dilation[0]
        length = layer.places + places + (-places % dilation)
        room = torch.randn(batch, length, channels, device=self.device, dtype=torch.bfloat16)
        took = timed(lambda: layer(room))
        shape = {"streams": batch, "what": name, "channels": channels, "dilation": dilation, "places": places}
        return {**shape, "ms": took, "TFLOP/s": 2.0 * batch * places * _weights(layer) / took / 1e9}

    def profile(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        if not self.cuda:
            return rows
        for batch in dict.fromkeys((self.batches[0], self.batches[-1])):
            work = self.step(self.model, batch, self.frames, first=False)
            work()
            with profile(activities=[ProfilerActivity.CUDA]) as found:
                work()
            kernels = sorted(found.key_averages(), key=lambda one: -one.self_device_time_total)[:14]
            rows += [
                {"streams": batch, "us": float(one.self_device_time_total), "calls": one.count, "kernel": one.key[:90]}
                for one in kernels
            ]
        return rows

    # ── what it needs ──

    def codes(self, batch: int, frames: int) -> Tensor:
        generator = torch.Generator().manual_seed(batch)
        shape = batch, frames, self.config.groups
        return torch.randint(0, self.config.codebook, shape, generator=generator).to(self.device)

    def tables(self, model: Code2Wav, batch: int) -> dict[str, Tensor]:
        return model.fresh(batch)._asdict()

    def batch(self, tables: dict[str, Tensor], codes: Tensor, start: int, *, first: bool) -> StepBatch:
        count = len(codes)
        zeros = torch.zeros(count, dtype=torch.int64, device=self.device)
        return StepBatch(
            rows=torch.arange(count, dtype=torch.int32, device=self.device),
            inputs={"codes": codes, "start": zeros + start},
            params={},
            seed=zeros,
            iteration=zeros,
            tensors=tables,
            variant=first,
        )

    def step(self, model: Code2Wav, batch: int, frames: int, *, first: bool) -> Work:
        given = self.batch(self.tables(model, batch), self.codes(batch, frames), 0 if first else START, first=first)
        return partial(Code2wav(model).step, given)

    def flops(self, streams: int, frames: int) -> float:
        """Operations of the products and convolutions: two for each weight and each place that it is applied at."""
        model, places = self.model, 1
        total = _weights(model.pre_transformer)
        for ratio, part in zip(self.config.ratios, model.upsample, strict=True):
            total += _weights(part[0]) * places + _weights(part[1]) * places * ratio
            places *= ratio
        total += _weights(model.decoder[0]) * places
        for rate, block in zip(self.config.rates, model.decoder[1:-2], strict=True):
            upsample = _weights(block.block[1])
            total += upsample * places + (_weights(block) - upsample) * places * rate
            places *= rate
        return 2.0 * streams * frames * (total + _weights(model.decoder[-1]) * places)

    def reset(self) -> None:
        if self.cuda:
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, float]:
        return {"peak GB": torch.cuda.max_memory_allocated() / 1e9} if self.cuda else {}


def _weights(module: nn.Module) -> int:
    """Numbers in its matrices and kernels."""
    return sum(one.numel() for one in module.parameters() if one.dim() > 1)


if __name__ == "__main__":
    main()
