"""On a GPU: frames encoded and predicted by the kernels of full-size heads, against the plain network; captured steps
to the last bit; the graph's tasks on the device."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_vjepa2_runs import PLACEMENT, PLAN, actions, asked, encoded, planned_for, pose
from walkgraph.abi.step import PagedRows, PagedSlot
from walkgraph.architectures.drawn import drawn
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.graph import codec
from walkgraph.layers.poses import move, plain_move
from walkgraph.models.vjepa2 import planning
from walkgraph.models.vjepa2.config import TransformerConfig, Vjepa2Config
from walkgraph.models.vjepa2.model import Vjepa2, normed
from walkgraph.models.vjepa2.operators import Predictor
from walkgraph.models.vjepa2.steps import EncoderSteps, PredictorSteps
from walkgraph.placement.document import decode

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CONFIG = Vjepa2Config(
    encoder=TransformerConfig(width=384, hidden=1024, layers=3, heads=6),
    predictor=TransformerConfig(width=256, hidden=512, layers=3, heads=4),
    patch=16,
    side=9,
)
"""83 tokens a frame: blocks that begin and end inside pages."""
FRAME = (CONFIG.patches, CONFIG.encoder.width)
FRAMES, ROWS = 4, 3


class Models:
    def __init__(self) -> None:
        self.served = drawn(lambda: Vjepa2(CONFIG), 5, device=CPU, dtype=torch.bfloat16).to(GPU)
        self.plain = Vjepa2(CONFIG).to(GPU)
        self.plain.load_state_dict({name: tensor.float() for name, tensor in self.served.state_dict().items()})
        self.see, self.predict = EncoderSteps(self.served.encoder), PredictorSteps(self.served.predictor)


@pytest.fixture(scope="module")
def models() -> Models:
    return Models()


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(GPU)


def slot_of(rows: int) -> PagedSlot:
    """Empty; what nobody wrote is no number."""
    sizes, pages = CONFIG.predictor, pages_for(FRAMES * CONFIG.tokens)
    shape = (sizes.layers, rows * pages * PAGE, sizes.heads, sizes.head_dim)
    k, v = torch.full((2, *shape), torch.nan, dtype=torch.bfloat16, device=GPU)
    spread = torch.randperm(rows * pages, generator=torch.Generator().manual_seed(1)).int().view(rows, pages).to(GPU)
    each = torch.arange(rows, dtype=torch.int32, device=GPU)
    return PagedSlot(k.unbind(), v.unbind(), PagedRows(each, spread, torch.zeros_like(each), torch.zeros_like(each)))


def on(slot: PagedSlot) -> None:
    slot.rows.lengths.add_(CONFIG.tokens)
    slot.rows.positions.add_(1)


def near(served: Tensor, exact: Tensor, rough: Tensor) -> None:
    """About as near to the exact answer as the plain network is that computes in bfloat16."""
    scale = exact.norm()
    off, usual = ((one.float() - exact).norm() / scale for one in (served, rough))
    assert float(off) < 1.3 * float(usual) + 1e-3, (float(off), float(usual))


@torch.inference_mode()
def test_pictures_are_encoded_as_by_the_plain_network(models: Models) -> None:
    pixels = random(1, ROWS, 3, CONFIG.pixels, CONFIG.pixels).clamp(-1, 1)
    served = models.see(pixels)
    assert served.dtype == torch.bfloat16
    near(served, normed(models.plain.encoder(pixels)), normed(models.served.encoder(pixels)))


@torch.inference_mode()
def test_frames_are_predicted_as_by_the_plain_network(models: Models) -> None:
    features, taken, at = random(2, ROWS, FRAMES, *FRAME), random(3, ROWS, FRAMES, 7), random(4, ROWS, FRAMES, 7)
    slot, served = slot_of(ROWS), []
    for frame in range(FRAMES):
        served.append(models.predict.step(features[:, frame].bfloat16(), taken[:, frame], at[:, frame], slot))
        on(slot)
    rough = models.served.predictor(features.bfloat16(), taken.bfloat16(), at.bfloat16())
    near(torch.stack(served, 1), normed(models.plain.predictor(features, taken, at)), normed(rough))


@torch.inference_mode()
def test_samples_are_as_many_runs(models: Models) -> None:
    features, taken, at = random(2, 2, *FRAME).bfloat16(), random(3, 2, ROWS, 7), random(4, 2, 7)
    wide = models.predict.step(features, taken, at, slot_of(2 * ROWS))
    each = [part.repeat_interleave(ROWS, 0) for part in (features, at)]
    alone = models.predict.step(each[0], taken.flatten(0, 1), each[1], slot_of(2 * ROWS))
    torch.testing.assert_close(wide.flatten(0, 1), alone, rtol=0.02, atol=0.02)


@torch.inference_mode()
def test_a_captured_step_serves_every_frame_to_the_last_bit(models: Models) -> None:
    features, taken, at = random(2, ROWS, *FRAME).bfloat16(), random(3, ROWS, 7), random(4, ROWS, 7)
    slot = slot_of(ROWS)
    models.predict.step(features, taken, at, slot)
    graph, replayed, eager = torch.cuda.CUDAGraph(), [], []
    with torch.cuda.graph(graph):
        found = models.predict.step(features, taken, at, slot)
    for _ in range(FRAMES):
        graph.replay()
        replayed.append(found.clone())
        on(slot)
    again = slot_of(ROWS)
    for _ in range(FRAMES):
        eager.append(models.predict.step(features, taken, at, again))
        on(again)
    assert torch.equal(torch.stack(replayed), torch.stack(eager))


def test_noise_and_poses_are_those_of_a_cpu() -> None:
    drawn_here, drawn_there = (
        planning.normals(torch.tensor([5], device=d), torch.tensor([3], device=d), 2, 400) for d in (CPU, GPU)
    )
    torch.testing.assert_close(drawn_there.cpu(), drawn_here, rtol=1e-6, atol=1e-6)
    at, taken = random(1, 50, 7), random(2, 50, 3, 7)
    at[0, 4] = torch.pi / 2
    taken[0, 0, 3:6] = 0
    for here, there in ((at, taken[:, 1]), (at[:, None], taken), (at[:, None].expand(-1, 3, -1), taken)):
        torch.testing.assert_close(move(here, there).cpu(), plain_move(here.cpu(), there.cpu()))


def test_tasks_run_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollouts of several lengths, a plan and a session; no call of a loop comes back to the worker."""

    def called(self: Predictor, calls: Any, states: Any) -> Any:
        raise AssertionError("a loop on the device steps")

    document = json.loads(GRAPHS["vjepa2_ac"].read_text())
    document["weights"]["vjepa2"]["source"] = "random:vjepa2-ac-tiny:3"
    document["nodes"]["picture_in"]["params"]["size"] = 32
    where = decode({**PLACEMENT, "ranks": [{"rank": 0, "device": "cuda:0"}]})
    local = LocalDeployment(codec.load(document), where, threads=1)
    monkeypatch.setattr(Predictor, "forward", called)
    for count in (1, 5):
        local.submit(f"roll {count}", "rollout", {"horizon": count}, asked(5, count))
    local.submit("plan", "plan", PLAN, planned_for())
    session: dict[str, Any] = {"session": "one"}
    local.submit("look", "begin", {}, {"image": [encoded(5)], "pose": [pose(5)]}, **session)
    local.run()
    frames: list[Tensor] = []
    for number, part in enumerate(actions(5, 5).split([2, 3])):
        local.submit(f"step {number}", "step", {"horizon": len(part)}, {"actions": [part]}, **session)
        local.run()
        frames += [torch.as_tensor(one).float().cpu() for one in local.outputs[f"step {number}"]["features"]]
    assert not local.failed, local.failed
    rolled = [torch.as_tensor(one).float().cpu() for one in local.outputs["roll 5"]["features"]]
    assert len(frames) == len(rolled) == 5
    torch.testing.assert_close(torch.stack(frames), torch.stack(rolled), rtol=0.05, atol=0.05)
    (action,) = local.outputs["plan"]["action"]
    assert torch.as_tensor(action).isfinite().all()
