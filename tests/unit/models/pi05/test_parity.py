"""pi0.5 against the published code: a checkpoint in the public layouts, read by our loader.

The published code's answers are stored (`tests/golden/make_pi05.py` says how they were made); weights, cameras and
prompts are made anew from names and seeds. Both sides compute in float32.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.golden import pi05_tiny as tiny
from walkgraph.models.pi05.config import read_pi05
from walkgraph.models.pi05.model import Pi05, Prefix
from walkgraph.models.pi05.weights import load_pi05

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
"""After one forward: sums run in another order."""
DRAWN = {"rtol": 1e-3, "atol": 1e-4}
"""After ten steps, each from the one before."""
C = tiny.CONFIG


def answer(name: str) -> Tensor:
    return torch.from_numpy(tiny.answers()[name])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Pi05:
    folder = tiny.write_folder(tmp_path_factory.mktemp("weights") / "pi05-tiny")
    return load_pi05(folder, read_pi05(folder))


def close(got: Tensor, wanted: Tensor, **bounds: float) -> None:
    torch.testing.assert_close(got, wanted, **(bounds or CLOSE))


def padded(asked: tiny.Asked) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Cameras, ids, lengths and which cameras are present, as the published code takes them."""
    rows = range(len(asked.lengths))
    ids = torch.zeros(len(rows), tiny.TEXT, dtype=torch.int64)
    for row in rows:
        ids[row, : asked.lengths[row]] = tiny.ids(row, asked.lengths[row])
    cameras = [torch.stack([tiny.pixels(row, camera) for row in rows]) for camera in range(3)]
    return cameras, ids, torch.tensor(asked.lengths), torch.tensor(asked.present)


def alone(model: Pi05, asked: tiny.Asked, row: int) -> Prefix:
    """A row's prefix of what is there alone: neither padding nor absent cameras."""
    cameras = [tiny.pixels(row, at)[None] for at, there in enumerate(asked.present[row]) if there]
    return model.read(*model.laid(cameras, tiny.ids(row, asked.lengths[row])[None], None))


def noises(asked: tiny.Asked) -> Tensor:
    return torch.stack([tiny.noise(row) for row in range(len(asked.lengths))])


@pytest.mark.parametrize("name", tiny.ASKED)
def test_padded_keys_values_and_velocities_are_the_published_ones(model: Pi05, name: str) -> None:
    asked = tiny.ASKED[name]
    prefix = model.read(*model.laid(*padded(asked)))
    assert prefix.valid is not None
    assert torch.equal(prefix.valid, answer(f"{name}/valid"))
    for layer in (0, C.layers - 1):
        for part, got in zip("kv", prefix.kv[layer], strict=True):
            close(got[prefix.valid], answer(f"{name}/{part}{layer}")[prefix.valid])
    for at in tiny.TIMES:
        times = torch.full((len(asked.lengths),), at)
        close(model.denoise(noises(asked), model.modulations(times), prefix), answer(f"{name}/velocity{at}"))


@pytest.mark.parametrize("name", tiny.ASKED)
def test_what_is_absent_or_padded_may_be_left_out(model: Pi05, name: str) -> None:
    asked = tiny.ASKED[name]
    for row in range(len(asked.lengths)):
        prefix, there = alone(model, asked, row), answer(f"{name}/valid")[row]
        assert prefix.kv[0][0].shape[1] == int(there.sum()) < len(there) or all(there)
        for layer in (0, C.layers - 1):
            for part, got in zip("kv", prefix.kv[layer], strict=True):
                close(got[0], answer(f"{name}/{part}{layer}")[row, there])
        for at in tiny.TIMES:
            got = model.denoise(tiny.noise(row)[None], model.modulations(torch.tensor([at])), prefix)
            close(got, answer(f"{name}/velocity{at}")[row : row + 1])


@pytest.mark.parametrize("name", tiny.ASKED)
def test_ten_steps_draw_the_published_actions(model: Pi05, name: str) -> None:
    asked = tiny.ASKED[name]
    prefix, x = model.read(*model.laid(*padded(asked))), noises(asked)
    for step in model.modulations(1 - torch.arange(tiny.STEPS) / tiny.STEPS):
        x = x - model.denoise(x, step.expand(len(x), -1, -1, -1), prefix) / tiny.STEPS
    close(x, answer(f"{name}/actions"), **DRAWN)


@pytest.mark.parametrize("name", tiny.ASKED)
def test_the_training_pass_has_the_published_loss(model: Pi05, name: str) -> None:
    asked, noise = tiny.ASKED[name], noises(tiny.ASKED[name])
    cameras, ids, lengths, present = padded(asked)
    time = torch.tensor(tiny.TIMES[: len(noise)])
    actions = torch.stack([tiny.noise(100 + row) for row in range(len(noise))])
    at = time[:, None, None]
    flow = model(cameras, ids, lengths, at * noise + (1 - at) * actions, time, present)
    close((noise - actions - flow.velocity).square(), answer(f"{name}/loss"), **DRAWN)


@pytest.mark.parametrize(("layout", "shards"), [("lerobot", 1), ("lerobot", 3), ("openpi", 2)])
def test_every_layout_holds_the_same_model(model: Pi05, tmp_path: Path, layout: str, shards: int) -> None:
    folder = tiny.write_folder(tmp_path / "pi05", layout, shards)
    state = load_pi05(folder, read_pi05(folder)).state_dict()
    wanted = model.state_dict()
    assert state.keys() == wanted.keys()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in state.items())
