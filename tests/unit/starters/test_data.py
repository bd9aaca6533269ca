"""Training tables, kept places and the schedule."""

import pytest
import torch

from walkgraph.starters.schedule import Clock, Ema, optimizer
from walkgraph.starters.shapes import data
from walkgraph.starters.shapes.render import render

torch.set_num_threads(1)


def test_tables_follow_their_seed_and_have_their_shapes() -> None:
    first, again = data.draws(40, 7, 1), data.draws(40, 7, 1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert first.items.shape == (40, 2, 4)
    assert first.caption.shape == (40, data.CAPTION)
    edits = data.edits(30, 8, 1)
    assert edits.before.shape == edits.after.shape == (30, 2, 4)
    assert edits.text.shape == (30, data.EDIT)


def test_items_that_stay_are_drawn_exactly_where_they_were() -> None:
    edits = data.edits(60, 9, 1)
    device = torch.device("cpu")
    before = data.shifts(60, device)
    after = data.kept_shifts(before, data.shifts(60, device), edits.moved)
    same_ground = edits.background == edits.background_after
    grown = same_ground & ((edits.after[:, :, 0] >= 0).sum(1) > (edits.before[:, :, 0] >= 0).sum(1))
    assert grown.any()
    a = render(edits.before, edits.background, before)[grown]
    b = render(edits.after, edits.background_after, after)[grown]
    changed = (a != b).any(1).flatten(1).sum(1)
    # One new item of at most ten pixels' radius differs, and nothing else.
    assert (changed > 20).all()
    assert (changed < 300).all()


def test_rates_warm_up_and_end_at_zero() -> None:
    clock = Clock(1000.0, warmup=10)
    assert clock.rate() == pytest.approx(0.1, rel=1e-3)
    clock.step = 10
    assert clock.rate() == pytest.approx(1.0, rel=1e-3)
    clock.start -= 1000.0
    assert clock.rate() == pytest.approx(0.0, abs=1e-6)
    assert not clock.running()


def test_an_update_moves_against_the_gradient_and_the_average_follows() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    adam, ema, clock = optimizer(model, 0.1), Ema(model, 0.5), Clock(1000.0, warmup=1)
    start = model.weight.detach().clone()
    loss = model(torch.ones(1, 3)).sum()
    clock.update(adam, model, loss)
    ema.update()
    assert (model.weight < start).all()
    live = model.weight.detach().clone()
    ema.swap()
    decay = 2 / 11
    torch.testing.assert_close(model.weight.detach(), start * decay + live * (1 - decay))
    ema.swap()
    assert torch.equal(model.weight, live)
