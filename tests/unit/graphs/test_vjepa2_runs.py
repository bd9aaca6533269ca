"""V-JEPA 2-AC over its bundled graph: pictures, actions and poses in, features, poses and plans out, on the device and
stepped; each against the plain network, which keeps nothing and predicts all frames anew."""

import io
import json
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.support.local import LocalDeployment, node_calls
from tests.unit.graphs.test_bundled import GRAPHS
from walkgraph.architectures.drawn import drawn
from walkgraph.graph import codec
from walkgraph.layers.poses import plain_move
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2.model import Vjepa2, Vjepa2Encoder, Vjepa2Predictor, normed
from walkgraph.models.vjepa2.operators import Predictor
from walkgraph.models.vjepa2.presets import VJEPA2
from walkgraph.placement.document import decode

CONFIG = VJEPA2["vjepa2-ac-tiny"]
CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
PLACEMENT = {
    "format": "walkgraph/placement@1",
    "name": "one",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}


@cache
def deployment(*, resident: bool = True) -> LocalDeployment:
    document = json.loads(GRAPHS["vjepa2_ac"].read_text())
    document["weights"]["vjepa2"]["source"] = "random:vjepa2-ac-tiny:3"
    document["nodes"]["picture_in"]["params"]["size"] = CONFIG.pixels
    return LocalDeployment(codec.load(document), decode(PLACEMENT), threads=1, resident=resident)


@cache
def model() -> Vjepa2:
    whole = Vjepa2(CONFIG)
    whole.encoder, whole.predictor = (
        drawn(lambda kind=kind: kind(CONFIG), 3, device=CPU, dtype=torch.float32)
        for kind in (Vjepa2Encoder, Vjepa2Predictor)
    )
    return whole


def levels(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (CONFIG.pixels, CONFIG.pixels, 3), dtype=np.uint8)


def encoded(seed: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(levels(seed)).save(buffer, "PNG")
    return buffer.getvalue()


def actions(seed: int, count: int) -> Tensor:
    return 0.3 * torch.randn(count, 7, generator=torch.Generator().manual_seed(seed))


def pose(seed: int) -> Tensor:
    return torch.rand(7, generator=torch.Generator().manual_seed(100 + seed))


@torch.inference_mode()
def seen(seed: int) -> Tensor:
    pixels = torch.from_numpy(levels(seed)).movedim(2, 0)[None] / 127.5 - 1
    return normed(model().encoder(pixels))[0]


@torch.inference_mode()
def imagined(start: Tensor, taken: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """start `[w, n, d]`, taken `[w, t, 7]`, at `[w, 7]` -> frames `[w, t, n, d]` and poses `[w, t, 7]`."""
    frames, poses = start[:, None], at[:, None]
    for step in range(taken.shape[1]):
        following = normed(model().predictor(frames, taken[:, : step + 1], poses)[:, -1:])
        frames = torch.cat([frames, following], 1)
        poses = torch.cat([poses, plain_move(poses[:, -1:], taken[:, step : step + 1])], 1)
    return frames[:, 1:], poses[:, 1:]


def close(got: Any, wanted: Tensor) -> None:
    torch.testing.assert_close(torch.stack([torch.as_tensor(one) for one in got]), wanted, **CLOSE)


def asked(seed: int, count: int) -> dict[str, list[Any]]:
    return {"image": [encoded(seed)], "actions": [actions(seed, count)], "pose": [pose(seed)]}


def test_a_picture_is_encoded() -> None:
    local = deployment()
    local.submit("see", "encode", {}, {"image": [encoded(1)]})
    local.run()
    close(local.outputs["see"]["features"], seen(1)[None])


@pytest.mark.parametrize("resident", [True, False])
def test_a_rollout_is_that_of_the_network_without_a_cache(resident: bool) -> None:
    """Several at once, of different lengths."""
    local = deployment(resident=resident)
    runs = {f"roll {count}": count for count in (5, 1, 3)}
    for run, count in runs.items():
        local.submit(run, "rollout", {"horizon": count}, asked(count, count))
    local.run()
    assert not local.failed
    for run, count in runs.items():
        frames, poses = imagined(seen(count)[None], actions(count, count)[None], pose(count)[None])
        close(local.outputs[run]["features"], frames[0])
        close(local.outputs[run]["pose"], poses[0])


def test_loops_are_the_engines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call of theirs comes back to the worker: planning is one loop, its frames inside it."""

    def called(self: Predictor, calls: Any, states: Any) -> Any:
        raise AssertionError("a loop on the device steps")

    local = deployment()
    monkeypatch.setattr(Predictor, "forward", called)
    local.submit("rolls", "rollout", {"horizon": 4}, asked(2, 4))
    local.submit("plans", "plan", PLAN, planned_for())
    local.run()
    assert not local.failed
    rolls, plans = (node_calls(local.times[run]) for run in ("rolls", "plans"))
    assert rolls["dream"] == rolls["move"] == 4
    assert plans["try"] == plans["move"] == PLAN["rounds"] * PLAN["horizon"]
    assert plans["propose"] == plans["distance"] == plans["refine"] == PLAN["rounds"]


PLAN = {"samples": 9, "horizon": 3, "rounds": 4, "top": 3, "max_norm": 0.4, "momentum_mean": 0.2, "seed": 11}


def planned_for() -> dict[str, list[Any]]:
    return {"image": [encoded(1)], "goal": [encoded(2)], "pose": [pose(1)]}


@cache
def plans(*, resident: bool) -> LocalDeployment:
    local = deployment(resident=resident)
    for seed in (11, 12):
        local.submit(f"plan {seed}", "plan", {**PLAN, "seed": seed}, planned_for())
    local.run()
    assert not local.failed, local.failed
    return local


@pytest.mark.parametrize("resident", [True, False])
def test_a_plan_is_that_of_rounds_by_hand(resident: bool) -> None:
    local = plans(resident=resident)
    (found,) = local.outputs["plan 11"]["action"]
    torch.testing.assert_close(torch.as_tensor(found), by_hand(11), **CLOSE)


@torch.inference_mode()
def by_hand(seed: int) -> Tensor:
    width, shares = PLAN["samples"], (PLAN["momentum_mean"], 0.15, 0.15, 0.15)
    mine = int.from_bytes(blake2b(f"{seed}:propose".encode(), digest_size=8).digest(), "big") >> 1
    momentum = planning.Momentum(*(torch.tensor([share]) for share in shares))
    mean, std = (part[None] for part in planning.rest(PLAN["horizon"], PLAN["max_norm"], device=CPU))
    for index in range(PLAN["rounds"]):
        noise = planning.normals(torch.tensor([mine]), torch.tensor([index]), PLAN["horizon"], width)
        drawn = planning.propose(noise, mean, std, torch.tensor([PLAN["max_norm"]]))
        taken = drawn[0].transpose(0, 1)
        frames, _ = imagined(seen(1).expand(width, -1, -1), taken, pose(1).expand(width, -1))
        cost = (frames[:, -1] - seen(2)).abs().mean((1, 2))
        mean, std = planning.refine(drawn, cost[None], mean, std, momentum, PLAN["top"])
    return planning.chosen(mean)[0]


def test_plans_of_other_seeds_are_others() -> None:
    one, other = (plans(resident=True).outputs[f"plan {seed}"]["action"][0] for seed in (11, 12))
    assert not torch.allclose(torch.as_tensor(one), torch.as_tensor(other), atol=1e-3)


@pytest.mark.parametrize("resident", [True, False])
def test_a_session_stepped_action_by_action_is_one_rollout(resident: bool) -> None:
    """One action, three in one request, and one: it goes on from where it stands."""
    local, taken = deployment(resident=resident), actions(7, 5)
    session: dict[str, Any] = {"session": f"session {resident}"}
    local.submit(f"look {resident}", "begin", {}, {"image": [encoded(4)], "pose": [pose(4)]}, **session)
    local.run()
    features, poses = [], []
    for number, part in enumerate(taken.split([1, 3, 1])):
        run = f"step {resident} {number}"
        local.submit(run, "step", {"horizon": len(part)}, {"actions": [part]}, **session)
        local.run()
        features += local.outputs[run]["features"]
        poses += local.outputs[run]["pose"]
    assert not local.failed, local.failed
    frames, moved = imagined(seen(4)[None], taken[None], pose(4)[None])
    close(features, frames[0])
    close(poses, moved[0])


@torch.inference_mode()
def test_a_picture_seen_again_takes_the_place_of_the_frame_predicted_last() -> None:
    """The frames before it stay in what the predictor sees; where the arm stands is told anew."""
    local, taken, session = deployment(), actions(8, 2), {"session": "looks again"}
    for number, action in enumerate(taken[:, None]):
        seed = 5 + number
        local.submit(f"look {seed}", "begin", {}, {"image": [encoded(seed)], "pose": [pose(seed)]}, **session)
        local.run()
        local.submit(f"act {seed}", "step", {}, {"actions": [action]}, **session)
        local.run()
    assert not local.failed, local.failed
    frames, poses = (torch.stack([of(seed) for seed in (5, 6)])[None] for of in (seen, pose))
    close(local.outputs["act 6"]["features"], normed(model().predictor(frames, taken[None], poses))[0, -1:])
    close(local.outputs["act 6"]["pose"], plain_move(pose(6), taken[1])[None])


def test_a_session_that_has_not_begun_says_so() -> None:
    local = deployment()
    local.submit("early", "step", {}, {"actions": [actions(1, 1)]}, session="nobody's")
    local.run()
    assert "doesn't know where the arm stands; begin the session with a pose" in str(local.failed.pop("early"))


@pytest.mark.parametrize(
    ("task", "params", "change", "told"),
    [
        ("rollout", {"horizon": 3}, {"actions": [torch.zeros(2, 7)]}, "input `action` of `dream` holds no value here"),
        ("rollout", {"horizon": 1}, {"pose": [torch.zeros(6)]}, "pose"),
        ("plan", {"samples": 4, "top": 5}, {}, "keeps the best `top` 5 of 4"),
    ],
)
def test_what_does_not_fit_is_refused(task: str, params: dict[str, Any], change: dict[str, Any], told: str) -> None:
    local, given = deployment(), {**asked(1, 3), **change}
    if task == "plan":
        given = {"image": given["image"], "goal": given["image"], "pose": given["pose"]}
    run = f"wrong {told}"
    local.submit(run, task, params, given)
    local.run()
    assert told in str(local.failed.pop(run))
