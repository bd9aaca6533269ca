"""V-JEPA 2-AC: pictures, features, predictions, poses and plans, by modules and by the bundled graph."""

import json
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.golden import make_vjepa2 as make
from tests.golden import vjepa2_tiny as tiny
from tests.golden.compare.table import DRAWN, Case
from tests.golden.pictures import png, seen
from tests.support.local import LocalDeployment
from walkgraph.graph import codec
from walkgraph.layers.poses import plain_move
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2.model import Vjepa2, normed, spread
from walkgraph.models.vjepa2.steps import EncoderSteps
from walkgraph.models.vjepa2.weights import load_encoder, load_predictor
from walkgraph.placement.document import decode
from walkgraph.resources import bundled

_CPU = torch.device("cpu")
_SIZES, _POSES = 60, 400
_START = "wide"
"""The shot that a rollout begins with."""
PLACEMENT = {
    "format": "walkgraph/placement@1",
    "name": "one",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}


def cases(code: Path) -> Iterator[Case]:
    theirs = make.published(code)
    encoder, predictor = make.build(theirs)
    with tempfile.TemporaryDirectory() as name:
        folder = tiny.write_folder(Path(name))
        yield from _pictures(theirs)
        yield from _modules(theirs, encoder, predictor, _ours(folder))
        yield from _served(theirs, encoder, predictor, _deployed(folder))
    yield from _poses(theirs)


def _ours(folder: Path) -> Vjepa2:
    model = Vjepa2(tiny.CONFIG)
    model.encoder, model.predictor = load_encoder(folder, tiny.CONFIG), load_predictor(folder, tiny.CONFIG)
    return model


def _deployed(folder: Path) -> LocalDeployment:
    document = json.loads(bundled("graphs")["vjepa2_ac"].read_text())
    document["weights"]["vjepa2"]["source"] = f"checkpoint:{folder.name}"
    document["nodes"]["picture_in"]["params"]["size"] = tiny.CONFIG.pixels
    return LocalDeployment(codec.load(document), decode(PLACEMENT), threads=1, roots=[folder.parent])


def _standard(pixels: Tensor) -> Tensor:
    mean, deviation = spread(_CPU)
    return ((pixels + 1) / 2 - mean) / deviation


def _pictures(theirs: types.SimpleNamespace) -> Iterator[Case]:
    """Whole pixels at the published side, of shapes by name and of many at random."""
    transform = make.transform(theirs, tiny.PUBLISHED_SIDE)

    def case(name: str, size: tuple[int, int]) -> Case:
        shot = tiny.shot(*size)
        got = _standard(seen("vjepa2_ac", "picture_in", png(shot)))
        return Case(f"pixels, {name}", got, transform(shot[None])[:, 0], 1e-6)

    for name, (width, height) in {**tiny.CAMERAS, **tiny.SHOTS}.items():
        yield case(f"{name}, {width} by {height}", (width, height))
    dice = np.random.default_rng(5)
    drawn = [tuple(map(int, dice.integers(1, 800, 2))) for _ in range(_SIZES)]
    # Of sides that differ by one the published transform leaves out either end at random.
    each = [case("", (width, height)) for width, height in drawn if abs(width - height) != 1]
    yield max(each, key=lambda one: one.off)._replace(name=f"pixels, the worst of {len(each)} shapes at random")


def _modules(theirs: types.SimpleNamespace, encoder: nn.Module, predictor: nn.Module, ours: Vjepa2) -> Iterator[Case]:
    model = make.world(theirs, encoder, predictor)
    wanted = make.encoded(encoder, model)
    encoded = ours.encoder(tiny.pictures())
    yield Case("encoder", encoded, wanted["encoded"])
    yield Case("encoder, normed", normed(encoded), wanted["seen"])
    yield Case("encoder as it is served", EncoderSteps(ours.encoder)(tiny.pictures()), wanted["seen"])
    yield Case("encoder of some patches", ours.encoder(tiny.pictures(), tiny.kept()), wanted["masked"])
    given = tiny.frames(), tiny.actions()[None, : tiny.FRAMES], tiny.poses()[None, : tiny.FRAMES]
    yield Case("predictor, teacher forced", ours.predictor(*given), make.taught(predictor)["taught"])
    found = list(_planned(ours, *torch.from_numpy(wanted["seen"])))
    for rounds, (got, plan) in enumerate(zip(found, make.planned(theirs, model)["planned"], strict=True), 1):
        # The published planner tells turns as it drew them: none.
        yield Case(f"plan after {rounds} rounds", got[:, :6], plan[:, :6], DRAWN)
        yield Case(f"action after {rounds} rounds", planning.chosen(got[None])[0], plan[0], DRAWN)


def _planned(ours: Vjepa2, start: Tensor, goal: Tensor) -> Iterator[Tensor]:
    """The mean after each round, `[t, 7]`, by the noise that the published planner is given."""
    mean, std = (part[None] for part in planning.rest(tiny.STEPS, tiny.MAX_NORM, device=_CPU))
    shares = (tiny.MOMENTUM_MEAN, tiny.MOMENTUM_STD, 0.15, 0.15)
    momentum = planning.Momentum(*(torch.tensor([share]) for share in shares))
    for drawn in tiny.noise():
        noise = torch.cat([drawn[..., :3], torch.ones(tiny.STEPS, tiny.SAMPLES, 3), drawn[..., 3:]], -1)[None]
        actions = planning.propose(noise, mean, std, torch.tensor([tiny.MAX_NORM]))
        cost = planning.distance(_last(ours, start, actions[0])[None], goal[None])
        mean, std = planning.refine(actions, cost, mean, std, momentum, tiny.TOP)
        yield mean[0]


def _last(ours: Vjepa2, start: Tensor, actions: Tensor) -> Tensor:
    """actions `[t, w, 7]` -> the frame after the last one, `[w, n, d]`."""
    frames = start.expand(tiny.SAMPLES, 1, -1, -1)
    poses = tiny.poses()[0].expand(tiny.SAMPLES, 1, -1)
    for step in range(len(actions)):
        taken = actions[: step + 1].transpose(0, 1)
        following = normed(ours.predictor(frames, taken, poses)[:, -1:])
        frames = torch.cat([frames, following], 1)
        poses = torch.cat([poses, plain_move(poses[:, -1:], taken[:, -1:])], 1)
    return frames[:, -1]


def _served(
    theirs: types.SimpleNamespace, encoder: nn.Module, predictor: nn.Module, local: LocalDeployment
) -> Iterator[Case]:
    """By the graph: encoded pictures in, features and poses out."""
    model = make.world(theirs, encoder, predictor)
    model.transform = make.transform(theirs, tiny.CONFIG.pixels)

    def outputs(run: str, task: str, params: dict[str, Any], inputs: dict[str, Any], **how: Any) -> dict[str, Any]:
        local.submit(run, task, params, {name: [value] for name, value in inputs.items()}, **how)
        local.run()
        assert not local.failed, local.failed
        return {name: torch.stack([torch.as_tensor(v) for v in values]) for name, values in local.outputs[run].items()}

    for name, (width, height) in tiny.SHOTS.items():
        shot = tiny.shot(width, height)
        got = outputs(f"see {name}", "encode", {}, {"image": png(shot)})["features"]
        yield Case(f"features, {name}, {width} by {height}", got, model.encode(shot))
    shot, actions, pose = tiny.shot(*tiny.SHOTS[_START]), tiny.actions(), tiny.poses()[0]
    frames, poses = make.rolled(theirs, predictor, model.encode(shot))
    given = {"image": png(shot), "actions": actions, "pose": pose}
    got = outputs("roll", "rollout", {"horizon": len(actions)}, given)
    yield Case(f"rollout of {len(actions)} frames", got["features"], frames, DRAWN)
    yield Case("poses of the rollout", got["pose"], poses)
    outputs("begin", "begin", {}, {"image": png(shot), "pose": pose}, session="one")
    parts = [
        outputs(f"step {at}", "step", {"horizon": len(part)}, {"actions": part}, session="one")
        for at, part in enumerate(actions.split([1, len(actions) - 1]))
    ]
    for name, wanted in (("features", frames), ("pose", poses)):
        yield Case(f"{name} of a session", torch.cat([part[name] for part in parts]), wanted, DRAWN)


def _poses(theirs: types.SimpleNamespace) -> Iterator[Case]:
    """Turns by up to a right angle from any pose; angles are compared by what they turn."""
    drawn = torch.rand(2, _POSES, 7, generator=torch.Generator().manual_seed(3)) * 2 - 1
    pose, action = drawn[0] * torch.tensor([1, 1, 1, 3, 1.4, 3, 1]), drawn[1] * 1.5
    wanted = theirs.mpc.compute_new_pose(pose[:, None], action[:, None])[:, 0]
    yield Case(f"{_POSES} poses at random", plain_move(pose, action), wanted)
