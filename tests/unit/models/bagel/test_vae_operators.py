"""The autoencoder's operators: batches within the memory of one large picture, and the decoder's step."""

from __future__ import annotations

import pytest
import torch

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.engine import Engine
from walkgraph.models.bagel import vae_operators
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.vae_operators import VaeDecoder

CONFIG = BAGEL["bagel-tiny"]
NODES = {
    "encoder": ("walkgraph.models.bagel.vae_operators:VaeEncoder", {}),
    "decoder": ("walkgraph.models.bagel.vae_operators:VaeDecoder", {}),
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:bagel-tiny:5"))


def latents(seed: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(height, width, CONFIG.latent_channels, generator=generator)


def decode(seed: int, height: int, width: int) -> Call:
    return call("decoder", {"latents": latents(seed, height, width)}, run=str(seed))


def test_a_batch_is_computed_in_parts_that_fit_a_large_picture(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = [outputs(engine, decode(seed, 2, 1))[0]["pixels"] for seed in range(5)]
    monkeypatch.setattr(vae_operators, "_PIXELS", 2 * 2 * 16**2)
    for batch in (2, 5):
        done = serve(engine, *[decode(seed, 2, 1) for seed in range(batch)])
        assert {one.batch for one in done} == {batch}
        for one, wanted in zip(done, alone, strict=False):
            assert one.outputs is not None
            torch.testing.assert_close(one.outputs["pixels"], wanted, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(vae_operators, "_PIXELS", 1)
    made = outputs(engine, *[call("encoder", {"pixels": p}, run=str(i)) for i, p in enumerate(alone)])
    monkeypatch.undo()
    for one, pixels in zip(made, alone, strict=True):
        [wanted] = outputs(engine, call("encoder", {"pixels": pixels}))
        torch.testing.assert_close(one["latents"], wanted["latents"], rtol=1e-4, atol=1e-5)


def test_squares_of_the_largest_side_and_half_of_it_are_served_by_a_step(engine: Engine) -> None:
    decoder = engine._parts.nodes["decoder"].operator
    assert isinstance(decoder, VaeDecoder)
    singles = CapturedSteps(Capturer(torch.device("cpu")))
    for inputs in decoder.step_examples():
        singles.prepare(decoder, inputs, {})
    for side in (8, 4):
        calls = [decode(seed, side, side) for seed in range(3)]
        assert len({singles.key(decoder, one) for one in calls} - {None}) == 1
        served = singles.serve(decoder, calls, lambda _: {"pixels": None})
        for one, made in zip(calls, served.outputs, strict=True):
            [wanted] = outputs(engine, one)
            torch.testing.assert_close(made["pixels"], wanted["pixels"], rtol=1e-4, atol=1e-5)
    for other in (decode(0, 8, 4), decode(0, 2, 2), call("decoder", {"latents": torch.zeros(8, 8, 3)})):
        assert singles.key(decoder, other) is None
