"""On a GPU: the captured step against forward and against the CPU, its noise, and what TF32 costs in exactness."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor

from walkgraph.abi.calls import Call, ChunkInfo
from walkgraph.abi.states import States
from walkgraph.abi.step import StepBatch
from walkgraph.engine.device.capture import Capturer
from walkgraph.models.snac.model import Snac, counter_noise, precision, random_snac
from walkgraph.models.snac.operators import Decoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def exact() -> Snac:
    return random_snac("snac-24khz", 1, device=CPU)


@pytest.fixture(scope="module")
def model(exact: Snac) -> Snac:
    found = random_snac("snac-24khz", 2, device=torch.device("cuda"))
    found.load_state_dict(exact.state_dict())
    return found


def off(made: Tensor, wanted: Tensor) -> float:
    return float((made.cpu() - wanted.cpu()).norm() / wanted.cpu().norm())


def batch_of(rows: int, first: int) -> StepBatch:
    generator = torch.Generator().manual_seed(first)
    return StepBatch(
        rows=torch.arange(rows, dtype=torch.int32).cuda(),
        inputs={
            "codes": torch.randint(0, 4096, (rows, 28), generator=generator).cuda(),
            "frame": torch.arange(first, first + rows).cuda(),
        },
        params={},
        seed=torch.arange(rows).cuda() * 2**40 - 7,
        iteration=torch.zeros(rows, dtype=torch.int64).cuda(),
        variant=(1, 2),
    )


@torch.inference_mode()
def test_the_gpu_sounds_as_the_cpu(model: Snac, exact: Snac) -> None:
    batch = batch_of(2, 5)
    codes, seed, frame = batch.inputs["codes"], batch.seed, batch.inputs["frame"]
    noise = counter_noise(model.config, seed, frame)
    twin = counter_noise(model.config, seed.cpu(), frame.cpu())
    torch.testing.assert_close(noise(2, 0, 4096).cpu(), twin(2, 0, 4096), rtol=1e-5, atol=1e-6)
    wanted = exact.decode(codes.cpu(), noise=twin)
    for tf32, most in ((False, 1e-5), (True, 2e-2)):
        with precision(tf32=tf32):
            assert off(model.decode(codes, noise=noise), wanted) < most


@pytest.mark.parametrize("rows", [1, 4, 32])
@torch.inference_mode()
def test_a_captured_step_is_the_eager_one_on_new_codes(model: Snac, rows: int) -> None:
    device = torch.device("cuda")
    operator = Decoder(model, device, tf32=False)
    batch = batch_of(rows, 0)
    made = torch.empty(rows, 2048, device=device)
    capturer = Capturer(device)

    def work() -> None:
        made.copy_(operator.step(batch).ports["waveform"])

    replay = capturer(work, "step")
    assert capturer.count == 1, capturer.failed
    for first in (3, 11):
        new = batch_of(rows, first)
        for name, tensor in batch.inputs.items():
            tensor.copy_(new.inputs[name])
        replay()
        assert off(made, operator.step(new).ports["waveform"]) < 1e-5


@torch.inference_mode()
def test_a_step_is_what_forward_makes(model: Snac) -> None:
    operator = Decoder(model, torch.device("cuda"), tf32=False)
    batch = batch_of(3, 6)
    calls: list[Call] = []
    for codes, seed, frame in zip(batch.inputs["codes"], batch.seed, batch.inputs["frame"], strict=True):
        start = 7 * int(frame)
        chunk = ChunkInfo(9, first=False, last=False, valid=28, context=21, start=start)
        calls.append(Call("r", "n", "w", 0, 0, (), {"codes": codes}, {"flush": True}, {}, int(seed), {"codes": chunk}))
    assert all(operator.step_inputs(one) is not None for one in calls)
    made = torch.stack([one["waveform"] for one in operator.forward(calls, cast("States", None))])
    assert off(operator.step(batch).ports["waveform"], made) < 1e-5
