"""The shipped world model imagines and plans as its figures say, and what trains it has gradients where it learns."""

import json

import pytest
import torch

from walkgraph.models.vjepa2.config import TransformerConfig, Vjepa2Config, read_vjepa2
from walkgraph.models.vjepa2.model import Vjepa2, normed
from walkgraph.models.world.painter import Painter
from walkgraph.models.world.picture import picture
from walkgraph.models.world.scene import MOST, SIDE, drawn, run
from walkgraph.placement.sizes import weights_folder
from walkgraph.starters import names
from walkgraph.starters.world import data
from walkgraph.starters.world.config import MODEL
from walkgraph.starters.world.evaluate import foresight, planning, read, strips
from walkgraph.starters.world.imagine import Search, imagined, seen
from walkgraph.starters.world.train import PredictorLoss, fresh
from walkgraph.starters.world.train_encoder import SHARES, EncoderLoss, fixed_reading

torch.set_num_threads(1)
FOLDER = weights_folder("starter:world", ())
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shipped() -> tuple[Vjepa2, Painter]:
    return read(FOLDER)


@pytest.fixture(scope="module")
def tiny() -> Vjepa2:
    torch.manual_seed(0)
    sizes = TransformerConfig(width=24, hidden=32, layers=2, heads=3)
    return Vjepa2(Vjepa2Config(encoder=sizes, predictor=sizes, patch=8, side=8))


def test_the_starter_is_found_and_small() -> None:
    assert "world" in names()
    assert sum(path.stat().st_size for path in FOLDER.glob("*.safetensors")) < 11.6e6
    assert read_vjepa2(FOLDER) == MODEL


def test_the_shipped_figures_pass_the_bars() -> None:
    figures = json.loads((FOLDER / "figures.json").read_text())
    assert figures["count"] >= 512
    assert figures["latent"]["share_of_copy_last"] <= 0.4
    assert figures["place"]["pixels_at_8"] <= 2
    assert figures["plan"][0]["count"] >= 128
    assert figures["plan"][0]["reached"] >= 0.9


def test_fresh_rollouts_stay_near_the_truth(shipped: tuple[Vjepa2, Painter]) -> None:
    figures = foresight(*shipped, count=12, length=8, seed=5)
    assert figures["latent"]["share_of_copy_last"] < 0.5
    assert figures["place"]["pixels_at_8"] < 3
    assert figures["place"]["moved_by_frame"][-1] > 8


def test_pictures_are_painted_as_they_were_seen(shipped: tuple[Vjepa2, Painter]) -> None:
    model, painter = shipped
    images = picture(drawn(range(8)))
    with torch.inference_mode():
        painted = painter(seen(model, images))
    assert (painted - images).abs().mean() < 0.03


def test_a_plan_reaches_its_goal(shipped: tuple[Vjepa2, Painter]) -> None:
    model, _ = shipped
    figures = planning(model, 1, Search(samples=24, top=4, rounds=2), seed=77)
    assert figures["place_reached"] == 1.0


def test_strips_show_truth_above_imagination(shipped: tuple[Vjepa2, Painter]) -> None:
    assert strips(*shipped, seed=1, rows=1, length=2).size == (3 * SIDE, 2 * SIDE)


def test_parallel_passes_are_a_rollout_for_as_many_frames(tiny: Vjepa2) -> None:
    """The loss of `deep` passes on two frames is that of a rollout of two."""
    loss = PredictorLoss(tiny.predictor)
    scene, actions, poses = data.episodes(2, 2, CPU)
    with torch.no_grad():
        frames = seen(tiny, picture(scene))
        ahead = imagined(tiny.predictor, frames[:, 0], actions, poses[:, 0])
        moved = (frames[:, 1:] - frames[:, :-1]).abs().mean(-1, keepdim=True)
        weight = 0.5 + 0.5 * (moved / moved.mean()).clamp(max=8)
        wanted = (weight * (ahead - frames[:, 1:]).abs()).mean()
        _, (one, more) = loss(frames, actions, poses, 1)
    assert float(more) == pytest.approx(float(wanted), rel=1e-4)
    assert float(one) != pytest.approx(float(wanted), rel=1e-4)


def test_a_predictor_begins_as_copy_last() -> None:
    model, _ = fresh()
    frames = normed(torch.randn(1, 2, 64, 192))
    with torch.no_grad():
        ahead = normed(model.predictor(frames, torch.zeros(1, 2, 7), torch.zeros(1, 2, 7)))
    assert (ahead - frames).abs().mean() < 0.4 * frames.abs().mean()


def test_the_encoders_loss_has_gradients_for_all_that_is_kept() -> None:
    model, painter = fresh()
    total = EncoderLoss(model, painter)
    images = picture(drawn(range(4)))
    loss, parts = total(images, torch.zeros(4, len(SHARES)), torch.rand(2, 64).argsort(1)[:, :20])
    loss.backward()
    assert parts.isfinite().all()
    lacking = {
        name for name, part in [*model.encoder.named_parameters(), *painter.named_parameters()] if part.grad is None
    }
    assert lacking == {"read.weight", "read.bias"}


def test_directions_are_fixed_apart_and_mean_nothing_to_a_norm() -> None:
    _, painter = fresh()
    fixed_reading(painter)
    directions = painter.read.weight * torch.tensor(SHARES)[:, None]
    assert torch.allclose(directions @ directions.T, torch.eye(len(SHARES)), atol=1e-5)
    assert directions.sum(1).abs().max() < 1e-4


def test_poses_are_reckoned_as_if_nothing_stopped_the_shape() -> None:
    pose = drawn([1]).pose()
    actions = torch.zeros(1, 3, 7)
    actions[..., 0], actions[..., 6] = 0.05, 0.6
    poses = data.reckoned(pose, actions)
    assert poses[0, :, 0].tolist() == pytest.approx([float(pose[0, 0]) + 0.05 * t for t in range(3)])
    assert poses[0, -1, 6] == 1


def test_episodes_are_what_happens() -> None:
    scene, actions, poses = data.episodes(64, 5, CPU)
    first = type(scene)(*(part[:, 0] for part in scene))
    assert torch.equal(run(first, actions).place, scene.place[:, 1:])
    assert torch.equal(poses[:, 0], first.pose())
    assert actions[..., :2].abs().max() <= MOST
    assert actions[..., 6].abs().max() <= 0.75
    assert (actions[..., 3:6] == 0).all()
