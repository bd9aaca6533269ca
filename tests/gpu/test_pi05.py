"""On a GPU, in bfloat16: pi0.5 with heads of the published sizes acts as the plain network does in float32."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_pi05_acts import CAMERAS, PLACEMENT, asked, levels, prompt
from walkgraph.abi.calls import Call
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.graph import codec
from walkgraph.layers.attention.packed_blocks import PackedBlocks
from walkgraph.layers.flow.flow_end import end
from walkgraph.layers.flow.flow_head import FlowInterval, VelocityHead
from walkgraph.models.pi05.config import Pi05Config, Widths
from walkgraph.models.pi05.operators import random_pi05
from walkgraph.models.pi05.presets import PI05
from walkgraph.placement.document import decode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
WIDE = dataclasses.replace(
    PI05["pi05-tiny"],
    vision=SiglipConfig(width=144, hidden=208, layers=2, heads=2, patch=8, side=4),
    prefix=Widths(width=256, hidden=512),
    expert=Widths(width=128, hidden=256),
    head_dim=256,
)
NEAR = 0.05
"""Relative distance: bfloat16 rounds by 0.004, and ten steps follow each other."""


def distance(got: Tensor, wanted: Tensor) -> float:
    return float((got.float().cpu() - wanted.float().cpu()).norm() / wanted.float().norm())


@pytest.fixture(scope="module")
def deployment() -> Iterator[LocalDeployment]:
    document = json.loads(GRAPHS["pi05"].read_text())
    document["weights"]["pi05"]["source"] = "random:pi05-wide:3"
    placement = {**PLACEMENT, "ranks": [{"rank": 0, "device": "cuda:0"}]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PI05, "pi05-wide", WIDE)
        local = LocalDeployment(codec.load(document), decode(placement), threads=1)
        for rank, engine in local.engines.items():
            for loop in local.cores[rank].loops():
                engine.prepare(loop, lambda _what, _done: None)
        yield local


def drawn(config: Pi05Config, cameras: tuple[str, ...], *, steps: int, horizon: int, seed: int) -> Tensor:
    """By the plain network, in float32."""
    model = random_pi05(config, 3, device=torch.device("cuda"), dtype=torch.float32)
    pixels = [torch.from_numpy(levels(name)).movedim(2, 0)[None].cuda() / 127.5 - 1 for name in cameras]
    x = torch.randn(1, horizon, 32, generator=torch.Generator().manual_seed(seed)).cuda()
    for step in range(steps):
        with torch.enable_grad():
            flow = model(pixels, prompt()[None].cuda(), None, x, torch.tensor([1 - step / steps]).cuda())
        x = x - flow.velocity.detach() / steps
    return x[0, :, :7]


@pytest.mark.parametrize("cameras", [CAMERAS, ("left_wrist",), ()])
def test_a_robot_acts_as_the_plain_network(deployment: LocalDeployment, cameras: tuple[str, ...]) -> None:
    run = f"sees {len(cameras)}"
    deployment.submit(run, "act", {"horizon": 15, "steps": 10, "seed": 7}, asked(*cameras))
    deployment.run()
    assert not deployment.failed
    [actions] = deployment.outputs[run]["actions"]
    assert distance(torch.as_tensor(actions), drawn(WIDE, cameras, steps=10, horizon=15, seed=7)) < NEAR
    deployment.release(run)


def test_robots_that_act_at_once_act_as_alone(deployment: LocalDeployment) -> None:
    runs = {f"{index} at once": CAMERAS[: index % 4] for index in range(9)}
    turns = "all", "each"
    for turn in turns:
        for index, (run, cameras) in enumerate(runs.items()):
            deployment.submit(f"{run} {turn}", "act", {"horizon": 15, "steps": 10, "seed": index}, asked(*cameras))
            if turn == "each":
                deployment.run()
        deployment.run()
    assert not deployment.failed
    acted = {
        run: [torch.as_tensor(deployment.outputs[f"{run} {turn}"]["actions"][0]) for turn in turns] for run in runs
    }
    off = {run: distance(*both) for run, both in acted.items()}
    assert max(off.values()) < NEAR, off


def test_what_is_launched_behind_what_is_under_way_gives_the_same(deployment: LocalDeployment) -> None:
    """Nobody waits between the cameras and the last launch, and the numbers are those of one who does."""
    [engine] = deployment.engines.values()
    follows, followed, acted = engine.calls.follows, set[str](), dict[str, Tensor]()

    def noted(call: Call) -> bool:
        if follows(call):
            followed.add(call.node)
        return follows(call)

    try:
        for index in range(12):
            run = f"behind {index // 2} {index % 2}"
            engine.calls.follows = noted if index % 2 else lambda call: False
            deployment.submit(
                run, "act", {"horizon": 15, "steps": 10, "seed": index // 2}, asked(*CAMERAS[: index // 4])
            )
            deployment.run()
            acted[run] = torch.as_tensor(deployment.outputs[run]["actions"][0])
            deployment.release(run)
    finally:
        engine.calls.follows = follows
    assert not deployment.failed
    assert {"vision", "prefix", "noise"} <= followed
    assert all(acted[f"behind {one} 0"].equal(acted[f"behind {one} 1"]) for one in range(6))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("width", [72, 256])
def test_packed_blocks_see_themselves_alone(groups: int, width: int) -> None:
    dice = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(300, heads, width, generator=dice).bfloat16() for heads in (8, groups, groups))
    bounds = torch.tensor([0, 130, 130, 260, 271, 271], dtype=torch.int32)
    wanted = PackedBlocks(bounds, 200, 8)(q.float(), k.float(), v.float())
    with torch.inference_mode():
        found = PackedBlocks(bounds.cuda(), 200, 8)(q.cuda(), k.cuda(), v.cuda())
    assert distance(found[:271], wanted[:271]) < 0.01


def test_a_step_ends_as_plainly() -> None:
    dice = torch.Generator().manual_seed(1)
    x, actions = torch.randn(100, 1024, generator=dice), torch.randn(2, 50, 32, generator=dice)
    table, weight, bias = (torch.randn(size, generator=dice) / 32 for size in ((2, 2048), (32, 1024), (32,)))
    times = torch.rand(2, 3, generator=dice)
    last, way = (
        VelocityHead(table[:, :1024], table[:, 1024:], 1e-6, weight, bias),
        FlowInterval(*times[:, 1:].unbind(1)),
    )
    wanted = end(x.bfloat16().float(), last, actions, way)
    there = VelocityHead(*(part.cuda() if isinstance(part, Tensor) else part for part in last))
    with torch.inference_mode():
        found = end(x.bfloat16().cuda(), there, actions.cuda(), FlowInterval(*times.cuda()[:, 1:].unbind(1)))
    assert distance(found - actions.cuda(), wanted - actions) < 1e-4
