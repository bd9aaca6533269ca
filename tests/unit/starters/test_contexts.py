"""The training layout and the step-by-step contexts are the same model: same velocities, same logits."""

import pytest
import torch

from walkgraph.layers.pictures.patches import patchify
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.flow.sampler import interpolate
from walkgraph.starters.shapes.config import config
from walkgraph.starters.shapes.context import Context
from walkgraph.starters.shapes.losses import Tasks

torch.set_num_threads(1)
GRID = (4, 4)


@pytest.fixture(scope="module")
def model() -> Bagel:
    torch.manual_seed(0)
    model = Bagel(config()).eval().requires_grad_(False)
    for parameter in model.parameters():
        if parameter.ndim >= 2 and parameter is not model.latent_pos_embed.pos_embed:
            parameter.normal_(std=0.1)
    return model


def texts(lengths: list[int], longest: int) -> torch.Tensor:
    ids = torch.randint(0, 400, (len(lengths), longest))
    for row, length in zip(ids, lengths, strict=True):
        row[length:] = -1
    return ids


def test_describe_layout_equals_contexts(model: Bagel) -> None:
    ids, images = texts([5, 20, 24], 24), torch.rand(3, 3, 64, 64) * 2 - 1
    loss = Tasks(config(), "cpu").describe(model, ids, patchify(images, 8))
    total, count = 0.0, 0
    for i in range(3):
        row = ids[i][ids[i] >= 0][None]
        context = Context.empty(model, 1).picture_seen(images[i : i + 1])
        for place in range(row.shape[1] - 1):
            context, h = context.text(row[:, place : place + 1], torch.ones(1, 1, dtype=torch.bool))
            total += -model.logits(h[:, -1]).log_softmax(-1)[0, row[0, place + 1]]
            count += 1
        assert context.position.tolist() == [1 + row.shape[1] - 1]
    assert loss == pytest.approx(float(total) / count, rel=1e-4)


def test_draw_layout_equals_contexts(model: Bagel) -> None:
    ids, kept = texts([4, 28, 9], 28), torch.tensor([True, True, False])
    data, noise, t = torch.randn(3, 16, 64), torch.randn(3, 16, 64), torch.rand(3)
    errors = Tasks(config(), "cpu").draw(model, ids, data, noise, t, {0: kept})
    noisy, v = interpolate(data, noise, t[:, None, None])
    for i in range(3):
        context = Context.empty(model, 1)
        if kept[i]:
            row = ids[i][ids[i] >= 0][None]
            context, _ = context.text(row, row >= 0)
        out = context.velocity(noisy[i : i + 1], t[i : i + 1], GRID)
        torch.testing.assert_close(errors[i], (out - v[i]).square().mean(), rtol=1e-4, atol=1e-5)


def test_edit_layout_equals_contexts_with_every_drop(model: Bagel) -> None:
    drops = torch.cartesian_prod(*[torch.tensor([True, False])] * 3)
    n = len(drops)
    ids, images = texts([3, 5, 7, 9, 11, 12, 13, 14], 14), torch.rand(n, 3, 64, 64) * 2 - 1
    clean, data, noise = torch.randn(3, n, 16, 64).unbind(0)
    t = torch.rand(n)
    kept = dict(enumerate(drops.unbind(1)))
    errors = Tasks(config(), "cpu").edit(model, ids, patchify(images, 8), clean, data, noise, t, kept)
    noisy, v = interpolate(data, noise, t[:, None, None])
    for i, (vae, vit, text) in enumerate(drops.tolist()):
        context = Context.empty(model, 1)
        if vae:
            context = context.picture_kept(clean[i : i + 1], GRID)
        if vit:
            context = context.picture_seen(images[i : i + 1])
        if text:
            row = ids[i][ids[i] >= 0][None]
            context, _ = context.text(row, row >= 0)
        assert context.position.item() == vae + vit + text * int((ids[i] >= 0).sum())
        out = context.velocity(noisy[i : i + 1], t[i : i + 1], GRID)
        torch.testing.assert_close(errors[i], (out - v[i]).square().mean(), rtol=1e-4, atol=1e-5)


def test_padded_batch_equals_each_alone(model: Bagel) -> None:
    ids = texts([3, 9], 9)
    context, _ = Context.empty(model, 2).text(ids.clamp(min=0), ids >= 0)
    x, t = torch.randn(2, 16, 64), torch.tensor([0.3, 0.8])
    together = context.velocity(x, t, GRID)
    for i, length in enumerate((3, 9)):
        alone, _ = Context.empty(model, 1).text(ids[i : i + 1, :length], torch.ones(1, length, dtype=torch.bool))
        torch.testing.assert_close(
            together[i : i + 1], alone.velocity(x[i : i + 1], t[i : i + 1], GRID), rtol=1e-4, atol=1e-5
        )
