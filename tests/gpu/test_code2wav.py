"""On a GPU, Qwen3-Omni's vocoder at full size in bfloat16: near float32, however a stream is cut and batched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from walkgraph.abi.step import StepBatch
from walkgraph.engine.device.capture import Capturer
from walkgraph.layers.sound.causal_conv import Tails, packed
from walkgraph.models.qwen3_omni.vocoder.config import PUBLISHED
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav
from walkgraph.models.qwen3_omni.vocoder.operators import Code2wav
from walkgraph.models.qwen3_omni.vocoder.weights import random_vocoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.fixture(scope="module")
def model() -> Code2Wav:
    return random_vocoder(PUBLISHED, 3, device=torch.device("cuda"), dtype=torch.bfloat16)


def heard(model: Code2Wav, codes: Tensor, cuts: Sequence[int]) -> Tensor:
    state, parts = model.fresh(len(codes)), list[Tensor]()
    with torch.inference_mode():
        for begin, end in pairwise((0, *cuts, codes.shape[1])):
            start = torch.full((len(codes),), begin, device="cuda")
            sound, state = model.decode(codes[:, begin:end], start, state, first=begin == 0)
            parts.append(sound)
    return torch.cat(parts, 1)


def codes_of(streams: int, frames: int) -> Tensor:
    generator = torch.Generator().manual_seed(streams)
    return torch.randint(0, PUBLISHED.codebook, (streams, frames, PUBLISHED.groups), generator=generator).cuda()


def off(made: Tensor, wanted: Tensor) -> float:
    return float((made - wanted).norm() / wanted.norm())


def test_sixteen_bits_are_near_float32_in_any_cut(model: Code2Wav) -> None:
    exact = random_vocoder(PUBLISHED, 3, device=torch.device("cuda"), dtype=torch.float32)
    exact.load_state_dict({name: one.float() for name, one in model.state_dict().items()})
    packed(exact)
    codes = codes_of(2, 36)
    wanted = heard(exact, codes, ())
    for cuts in (), (5, 15, 25), (1, 2, 35):
        made = heard(model, codes, cuts)
        print(cuts, off(made, wanted))
        assert off(made, wanted) < 0.03


@torch.inference_mode()
def test_the_decoder_gives_a_stream_the_same_samples_in_any_company_and_cut(model: Code2Wav) -> None:
    """Its kernels sum up in one order: whatever the batch, to the bit. Of many streams, the library convolves some."""
    x = torch.randn(17, 40, PUBLISHED.width, device="cuda").bfloat16()
    numbers = model.state_shapes[1][0]

    def sound(rows: Tensor, cuts: Sequence[int]) -> Tensor:
        rest, parts = rows.new_zeros(len(rows), numbers), list[Tensor]()
        for begin, end in pairwise((0, *cuts, rows.shape[1])):
            tails = Tails(rest)
            parts.append(model.waveform(rows[:, begin:end], tails, first=begin == 0))
            rest = tails.after
        return torch.cat(parts, 1)

    few = sound(x[3:6], ())
    assert torch.equal(sound(x[3:4], ()), few[:1])
    assert torch.equal(sound(x[4:6], (4, 20)), few[1:])
    assert off(sound(x, ())[3:6], few) < 0.02


@pytest.mark.parametrize("rows", [1, 4, 16])
@torch.inference_mode()
def test_a_captured_step_is_the_eager_one(model: Code2Wav, rows: int) -> None:
    codes = codes_of(rows, 10)
    zeros = torch.zeros(rows, dtype=torch.int64, device="cuda")
    operator, numbers = Code2wav(model), torch.arange(rows, dtype=torch.int32, device="cuda")
    fresh = {name: torch.randn_like(one) for name, one in model.fresh(rows)._asdict().items()}

    def batch() -> StepBatch:
        tables = {name: one.clone() for name, one in fresh.items()}
        inputs = {"codes": codes, "start": zeros + 100}
        return StepBatch(
            rows=numbers, inputs=inputs, params={}, seed=zeros, iteration=zeros, tensors=tables, variant=False
        )

    wanted, captured = batch(), batch()
    made = operator.step(wanted).ports["waveform"]
    held = list[Tensor]()
    replay = Capturer(torch.device("cuda"))(lambda: held.append(operator.step(captured).ports["waveform"]), "a step")
    for name, one in fresh.items():
        captured.tensors[name].copy_(one)
    replay()
    torch.cuda.synchronize()
    assert torch.equal(held[-1], made)
    for name in fresh:
        assert torch.equal(captured.tensors[name], wanted.tensors[name])
