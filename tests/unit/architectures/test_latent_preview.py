"""Previews against the decoder's pictures, with trained and with random weights."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import walkgraph.starters.shapes
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.flux_vae_packed import PackedVae
from walkgraph.architectures.latent_preview import LatentPreview, pictures
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.engine import Engine
from walkgraph.errors import Refused
from walkgraph.layers.pictures.patches import normalise
from walkgraph.models.bagel.config import read_bagel
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.bagel.vae_operators import Preview
from walkgraph.models.bagel.weights import load_autoencoder
from walkgraph.starters.shapes import render, scenes

torch.set_num_threads(1)
CPU = torch.device("cpu")
CONFIG = BAGEL["bagel-tiny"]


@pytest.fixture(scope="module")
def engine() -> Engine:
    nodes = {
        "preview": ("walkgraph.models.bagel.vae_operators:Preview", {}),
        "decoder": ("walkgraph.models.bagel.vae_operators:VaeDecoder", {}),
    }
    return engine_of(plan_of(nodes, source="random:bagel-tiny:5", params={"preview": {"detail": 4}}))


def alike(a: Tensor, b: Tensor) -> float:
    """Correlation of all numbers."""
    return float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])


@pytest.mark.parametrize("detail", [1, 8])
@torch.inference_mode()
def test_a_preview_of_scenes_it_never_saw_looks_like_them(detail: int) -> None:
    folder = Path(walkgraph.starters.shapes.__file__).parent
    vae = PackedVae(load_autoencoder(folder, read_bagel(folder)), torch.float32)
    preview = LatentPreview.fitted(vae, detail, 8, CPU)
    seen = normalise(render.draw(list(islice(scenes.draw_scenes(7, reserved=True), 16)), 7))
    latents = vae.encode(seen)
    # Estimates of a running picture are blurred ones of what it becomes.
    blurred = 0.5 * latents + 0.5 * F.avg_pool2d(F.pad(latents, (1, 1, 1, 1), mode="replicate"), 3, 1)
    for given in (latents, blurred):
        made = preview(given)
        assert made.shape == (16, 3, 8 * detail, 8 * detail)
        assert alike(made, F.avg_pool2d(vae.decode(given), 8 // detail)) > 0.95
    colours = (made - F.avg_pool2d(vae.decode(blurred), 8 // detail)).mean((0, 2, 3))
    assert float(colours.abs().max()) < 0.1


@torch.inference_mode()
def test_drawn_weights_are_fitted_too_and_always_alike() -> None:
    vae = PackedVae(drawn(lambda: AutoEncoder(CONFIG.vae), 3, device=CPU, dtype=torch.float32), torch.float32)
    one, two = (LatentPreview.fitted(vae, 1, 16, CPU) for _ in range(2))
    other = pictures(8, 64, torch.Generator().manual_seed(9))
    latents = vae.encode(other)
    assert torch.equal(one(latents), two(latents))
    wanted = F.avg_pool2d(vae.decode(latents), 8)
    shuffled = one(latents.roll(1, 0))
    assert alike(one(latents), wanted) > 0.5 > abs(alike(shuffled, wanted))


def test_pictures_to_fit_with_are_of_all_kinds() -> None:
    made = pictures(36, 64, torch.Generator().manual_seed(0))
    assert made.shape == (36, 3, 64, 64)
    assert made.min() >= -1
    assert made.max() <= 1
    corners = made[:, :, :2, :2].flatten(2).std(2).amax(1) == 0
    grey = (made[:, :, 0, 0].std(1) < 1e-6) & corners
    assert int(grey[:18].sum()) > 9 > int(grey[18:].sum())
    assert int(corners[18:27].sum()) > 4
    assert made.flatten(1).std(1).min() > 0.02


def test_a_node_paints_alone_in_a_batch_and_by_a_step(engine: Engine) -> None:
    operator = engine._parts.nodes["preview"].operator
    generator = torch.Generator().manual_seed(1)
    squares = [torch.randn(8, 8, CONFIG.latent_channels, generator=generator) for _ in range(3)]
    calls = [call("preview", {"latents": x}, run=str(i), detail=4) for i, x in enumerate(squares)]
    done = serve(engine, *calls)
    assert {one.batch for one in done} == {3}
    singles = CapturedSteps(Capturer(CPU))
    for inputs in operator.step_examples():
        singles.prepare(operator, inputs, {})
    stepped = singles.serve(operator, calls, lambda _: {"pixels": None}).outputs
    for one, own, step in zip(done, calls, stepped, strict=True):
        [alone] = outputs(engine, own)
        assert alone["pixels"].shape == (3, 64, 64)
        assert one.outputs is not None
        for made in (one.outputs, step):
            torch.testing.assert_close(made["pixels"], alone["pixels"], rtol=1e-4, atol=1e-5)
    [oblong] = outputs(engine, call("preview", {"latents": squares[0][:2, :3]}, detail=4))
    assert oblong["pixels"].shape == (3, 16, 24)
    [bad] = serve(engine, call("preview", {"latents": torch.zeros(2, 2, 5)}, detail=4))
    assert bad.error is not None
    assert "16 numbers" in bad.error.message


def test_pixels_that_do_not_divide_a_latent_one_are_refused() -> None:
    context = LoadContext(
        device=CPU, dtype=torch.float32, folder=None, shared={}, options={"detail": 3}, random=("bagel-tiny", 0)
    )
    with pytest.raises(Refused, match="divide 8"):
        Preview.load(context)
