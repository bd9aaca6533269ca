"""Samples of values on a GPU: as on a CPU, concurrent with steps, and without waiting for the device."""

import time

import pytest
import torch

from walkgraph.engine.probe import value_probe
from walkgraph.engine.probe.value_probe import ProbedValue, ProbeRequest, ValueProbe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
ALL = ProbeRequest(histogram=True, preview=True, record=True)
CASES = [
    ("features", (77, 4096), torch.bfloat16),
    ("features", (3001,), torch.float32),
    ("latents", (4096, 16), torch.bfloat16),
    ("latents", (64, 64, 16), torch.float32),
    ("pixels", (3, 1024, 1024), torch.float32),
    ("pixels", (512, 384, 3), torch.uint8),
    ("waveform", (72_000,), torch.float32),
    ("tokens", (1000,), torch.int64),
    ("flag", (), torch.bool),
    ("tensor", (0, 7), torch.float16),
    ("tensor", (3000, 3001), torch.float16),
]


def value_of(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(7)) * 40).to(dtype)


def looked(value: torch.Tensor, modality: str) -> ProbedValue:
    value_probe = ValueProbe()
    value_probe.take("t", value, modality, ALL)
    deadline = time.monotonic() + 20
    while not (found := value_probe.ready()):
        assert time.monotonic() < deadline
    return found[0]


@pytest.mark.parametrize(("modality", "shape", "dtype"), CASES)
def test_a_gpu_tells_what_a_cpu_tells(
    modality: str, shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(value_probe.SAMPLED, "cpu", value_probe.SAMPLED["cuda"])
    value = value_of(shape, dtype)
    here, there = looked(value, modality), looked(value.cuda(), modality)
    assert (here.dtype, here.shape, here.digest, here.picked) == (there.dtype, there.shape, there.digest, there.picked)
    one, two = here.statistics, there.statistics
    assert one is not None
    assert two is not None
    assert (one.count, one.nan, one.infinite, one.low, one.high) == (
        two.count,
        two.nan,
        two.infinite,
        two.low,
        two.high,
    )
    assert two.mean == pytest.approx(one.mean, rel=1e-9, abs=1e-9)
    assert two.std == pytest.approx(one.std, rel=1e-9)
    assert one.histogram == two.histogram
    assert type(here.preview) is type(there.preview)


@pytest.mark.parametrize(("modality", "shape", "dtype"), CASES)
def test_taking_never_waits_for_the_device(modality: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    value_probe, value = ValueProbe(), value_of(shape, dtype).cuda()
    for _ in range(3):  # kernels are loaded, memory is at hand
        value_probe.take("t", value, modality, ALL)
    torch.cuda.synchronize()
    value_probe.ready()
    torch.cuda.set_sync_debug_mode("error")
    try:
        torch.cuda._sleep(200_000_000)  # pyright: ignore[reportPrivateUsage] - about a tenth of a second of device time
        began = time.monotonic()
        value_probe.take("t", value, modality, ALL)
        took = time.monotonic() - began
        assert not value_probe.ready(), "it is behind what the value was made by"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert took < 0.02
    torch.cuda.synchronize()
    assert value_probe.ready()


def test_a_value_that_is_let_go_is_read_all_the_same() -> None:
    value_probe = ValueProbe()
    wanted = looked(torch.full((1 << 20,), 3.0), "tensor").digest
    for _ in range(50):
        value = torch.full((1 << 20,), 3.0, device="cuda")
        value_probe.take("t", value, "tensor", ALL)
        del value
        torch.full((1 << 20,), 4.0, device="cuda")
    torch.cuda.synchronize()
    assert {one.digest for one in value_probe.ready()} == {wanted}


def test_steps_beside_a_look_lose_little() -> None:
    """Printed for who reads: how long a look keeps the device's steps."""
    a, value, value_probe = torch.randn(4096, 4096, device="cuda"), torch.randn(77, 4096, device="cuda"), ValueProbe()

    def steps(look: bool) -> float:
        torch.cuda.synchronize()
        began = time.monotonic()
        for number in range(100):
            torch.mm(a, a)
            if look and number % 10 == 0:
                value_probe.take("t", value, "features", ProbeRequest(histogram=True, preview=True))
        torch.cuda.synchronize()
        value_probe.ready()
        return time.monotonic() - began

    steps(look=True)
    plain, beside = (min(steps(look=flag) for _ in range(5)) for flag in (False, True))
    print(f"100 steps: {1000 * plain:.2f} ms; with 10 looks {1000 * beside:.2f} ms")
    assert beside < 1.5 * plain
