"""V-JEPA 2-AC against the published code: its answers are stored (`tests/golden/make_vjepa2.py` says how they were
made); weights, pictures and actions are made anew from names and seeds. Both sides compute in float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.golden import vjepa2_tiny as tiny
from tests.golden.pictures import png, seen
from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.layers.poses import plain_move
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2.config import read_vjepa2
from walkgraph.models.vjepa2.model import Vjepa2, normed, spread
from walkgraph.models.vjepa2.steps import EncoderSteps, PredictorSteps
from walkgraph.models.vjepa2.weights import load_encoder, load_predictor

CLOSE = {"rtol": 2e-5, "atol": 2e-5}
CPU = torch.device("cpu")


def answer(name: str) -> Tensor:
    return torch.from_numpy(tiny.answers()[name])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Vjepa2:
    """Read from a folder whose names are a training run's."""
    folder = tiny.write_folder(tmp_path_factory.mktemp("weights"))
    config = read_vjepa2(folder)
    assert config == tiny.CONFIG
    model = Vjepa2(config)
    model.encoder, model.predictor = load_encoder(folder, config), load_predictor(folder, config)
    return model


@torch.inference_mode()
def test_a_frame_alone_is_encoded_as_the_published_encoder_sees_it_twice(model: Vjepa2) -> None:
    encoded = model.encoder(tiny.pictures())
    torch.testing.assert_close(encoded, answer("encoded"), **CLOSE)
    torch.testing.assert_close(normed(encoded), answer("seen"), **CLOSE)
    torch.testing.assert_close(EncoderSteps(model.encoder)(tiny.pictures()), answer("seen"), **CLOSE)


@torch.inference_mode()
@pytest.mark.parametrize("name", tiny.SHOTS)
def test_a_cameras_picture_is_seen_as_by_the_published_transform(model: Vjepa2, name: str) -> None:
    """A picture of any shape, read by the bundled graph's node: its middle square, resampled without smoothing."""
    pixels = seen("vjepa2_ac", "picture_in", png(tiny.shot(*tiny.SHOTS[name])), size=tiny.CONFIG.pixels)
    torch.testing.assert_close(EncoderSteps(model.encoder)(pixels[None])[0], answer(f"shot/{name}"), **CLOSE)


@pytest.mark.parametrize("name", tiny.CAMERAS)
def test_pixels_at_the_published_side_are_those_of_the_published_transform(name: str) -> None:
    pixels = seen("vjepa2_ac", "picture_in", png(tiny.shot(*tiny.CAMERAS[name])))
    assert pixels.shape == (3, tiny.PUBLISHED_SIDE, tiny.PUBLISHED_SIDE)
    mean, deviation = spread(CPU)
    standard = ((pixels + 1) / 2 - mean) / deviation
    torch.testing.assert_close(standard[:, :: tiny.TOLD, :: tiny.TOLD], answer(f"camera/{name}"), rtol=0, atol=1e-5)


@torch.inference_mode()
def test_an_encoder_that_sees_some_patches_is_that_of_training(model: Vjepa2) -> None:
    torch.testing.assert_close(model.encoder(tiny.pictures(), tiny.kept()), answer("masked"), **CLOSE)


@torch.inference_mode()
def test_frames_are_predicted_all_at_once_as_in_training(model: Vjepa2) -> None:
    given = tiny.frames(), tiny.actions()[None, : tiny.FRAMES], tiny.poses()[None, : tiny.FRAMES]
    torch.testing.assert_close(model.predictor(*given), answer("taught"), **CLOSE)


def test_poses_follow_as_by_rotations_of_the_published_code() -> None:
    pose, moved = tiny.poses()[0], []
    for action in tiny.actions():
        pose = plain_move(pose, action)
        moved.append(pose)
    torch.testing.assert_close(torch.stack(moved), answer("moved"), **CLOSE)


@torch.inference_mode()
def test_a_rollout_is_that_of_the_published_code_and_needs_no_frame_predicted_anew(model: Vjepa2) -> None:
    """The published code predicts all frames anew in every step; ours appends one to pages, not in their order."""
    wanted, steps, config = answer("imagined"), PredictorSteps(model.predictor), tiny.CONFIG
    pages = -(-tiny.HORIZON * config.tokens // PAGE)
    shape = (config.predictor.layers, pages * PAGE, config.predictor.heads, config.predictor.head_dim)
    lengths, positions = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    table = torch.arange(pages - 1, -1, -1, dtype=torch.int32)[None]
    rows = PagedRows(torch.zeros(1, dtype=torch.int32), table, lengths, positions)
    slot = PagedSlot(torch.zeros(shape).unbind(), torch.zeros(shape).unbind(), rows)
    frame, pose = answer("seen")[:1], tiny.poses()[:1]
    for at, action in enumerate(tiny.actions()[:, None]):
        frame, pose = steps.step(frame, action, pose, slot), plain_move(pose, action)
        lengths += config.tokens
        positions += 1
        torch.testing.assert_close(frame[0], wanted[at], **CLOSE)


@torch.inference_mode()
def test_plans_are_those_of_the_published_planner_with_its_noise(model: Vjepa2) -> None:
    start, goal = answer("seen")
    mean, std = (part[None] for part in planning.rest(tiny.STEPS, tiny.MAX_NORM, device=CPU))
    shares = (tiny.MOMENTUM_MEAN, tiny.MOMENTUM_STD, 0.15, 0.15)
    momentum = planning.Momentum(*(torch.tensor([share]) for share in shares))
    for drawn, wanted in zip(tiny.noise(), answer("planned"), strict=True):
        noise = torch.cat([drawn[..., :3], torch.ones(tiny.STEPS, tiny.SAMPLES, 3), drawn[..., 3:]], -1)[None]
        actions = planning.propose(noise, mean, std, torch.tensor([tiny.MAX_NORM]))
        cost = planning.distance(last_frames(model, start, actions[0])[None], goal[None])
        mean, std = planning.refine(actions, cost, mean, std, momentum, tiny.TOP)
        torch.testing.assert_close(mean[0, :, :6], wanted[:, :6], **CLOSE)
        torch.testing.assert_close(planning.chosen(mean)[0], wanted[0], **CLOSE)


def last_frames(model: Vjepa2, start: Tensor, actions: Tensor) -> Tensor:
    """actions `[t, w, 7]` -> the frame after the last one, of each sample, all frames predicted anew each time."""
    frames = start.expand(tiny.SAMPLES, 1, -1, -1)
    poses = tiny.poses()[0].expand(tiny.SAMPLES, 1, -1)
    for step in range(len(actions)):
        taken = actions[: step + 1].transpose(0, 1)
        following = normed(model.predictor(frames, taken, poses)[:, -1:])
        frames = torch.cat([frames, following], 1)
        poses = torch.cat([poses, plain_move(poses[:, -1:], taken[:, -1:])], 1)
    return frames[:, -1]
