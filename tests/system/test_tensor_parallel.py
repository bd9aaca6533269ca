"""Tensor-parallel and sequence-parallel groups of real processes on CPUs: their answers are those of one rank, and they
end together."""

import json
import os
import random
import signal
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from tests.support.deployment import KV_BYTES, Deployment, deployed
from tests.support.hearing import Hearing
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.ids import RunId
from walkgraph.models.llm.presets import LLM
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.tables import Plan
from walkgraph.telemetry import events as t
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Watch

pytestmark = pytest.mark.asyncio(loop_scope="session")

GRAPHS = Path(__file__).resolve().parents[2] / "graphs"
WORDS = "a heron stands in the river while rain falls on two boats and three oars".split()
LONG: dict[str, Any] = {"max_tokens": 4000, "temperature": 1.0, "seed": 1}
_NO_END = np.array([(stop, -100) for stop in LLM["qwen3-tiny"].stops], np.float32)
UNENDING = m.InlineTensor(dtype="float32", shape=_NO_END.shape, data=_NO_END.tobytes())
"""Added to logits so that no token ends the text, which random weights may draw at any place."""


def planned(
    name: str,
    sources: dict[str, str],
    shards: int,
    divides: str = "tensor_parallel",
    kv_bytes: int = KV_BYTES,
    **how: Any,
) -> tuple[Graph, Plan]:
    """A bundled graph with small weights at random, on as many CPU ranks. `how`: further fields of their group."""
    document = json.loads((GRAPHS / f"{name}.json").read_text())
    for key, source in sources.items():
        document["weights"][key]["source"] = source
    graph = codec.load(json.dumps(document).encode())
    ranks = tuple(RankDevice(rank=rank, device="cpu") for rank in range(shards))
    group = Group(nodes=("*",), ranks=tuple(range(shards)), **{divides: shards}, **how)
    made = assemble(Assignment(graph, Placement(name="shards", groups=(group,), ranks=ranks)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=kv_bytes) for rank in made.ranks)
    return graph, msgspec.structs.replace(made, ranks=kept)


async def written(deployment: Deployment, count: int) -> dict[int, Any]:
    """The answers to many questions at once, short and long, urgent or not, of which some are not waited for."""
    draw = random.Random(1)
    runs: dict[int, str] = {}
    for number in range(count):
        text = " ".join(draw.choices(WORDS, k=draw.choice((2, 9, 60))))
        params = {"seed": number, "max_tokens": draw.choice((3, 20, 40)), "temperature": 1.0}
        inputs = {"prompt": (m.Small(value=text),)}
        run = deployment.submit("complete", params, inputs=inputs, priority=draw.choice((0, 0, 3)))
        if draw.random() < 0.3:
            deployment.process.send(m.Abort(run=RunId(run)))
        else:
            runs[number] = run
    ends = [await deployment.end(run) for run in runs.values()]
    assert [end.error for end in ends] == [None] * len(runs)
    return {number: dict(deployment.outputs[run]) for number, run in runs.items()}


async def test_shards_answer_as_one_rank_does() -> None:
    found: dict[int, dict[int, Any]] = {}
    for shards in (1, 2, 4):
        async with deployed(*planned("llm", {"llm": "random:qwen3-tiny:0"}, shards)) as deployment:
            found[shards] = await written(deployment, 16)
            assert [rank.restarts for rank in deployment.status.ranks] == [0] * shards
    assert found[1] == found[2] == found[4]
    assert len({repr(answer) for answer in found[1].values()}) > 8, "else it tests less"


async def test_shards_with_whole_experts_answer_as_one_rank_does() -> None:
    found: dict[int, dict[int, Any]] = {}
    for shards, how in ((1, {}), (2, {"expert_parallel": True, "redundant_experts": 2})):
        async with deployed(*planned("llm", {"llm": "random:qwen3-moe-tiny:0"}, shards, **how)) as deployment:
            found[shards] = await written(deployment, 8)
    assert found[1] == found[2]
    assert len({repr(answer) for answer in found[1].values()}) > 4, "else it tests less"


async def test_shards_of_a_flow_step_draw_what_one_rank_does() -> None:
    found: dict[int, list[np.ndarray]] = {}
    for shards in (1, 2):
        async with deployed(*planned("shapes", {}, shards, "sequence_parallel", 4 * KV_BYTES)) as deployment:
            runs = [
                deployment.submit(
                    "text_to_image", {"seed": seed, "steps": 6}, inputs={"prompt": (m.Small(value=text),)}
                )
                for seed, text in enumerate(("a red circle", "a blue square", "two green triangles"))
            ]
            ends = [await deployment.end(run) for run in runs]
            assert [end.error for end in ends] == [None] * len(runs)
            found[shards] = [pixels(deployment.outputs[run]["image"][-1]) for run in runs]
    for one, other in zip(found[1], found[2], strict=True):
        assert np.abs(one - other).max() <= 1, "a rounded pixel"
    assert len({one.tobytes() for one in found[1]}) == 3, "else it tests less"


def pixels(encoded: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(encoded)).convert("RGB")).astype(int)


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_shard_that_dies_ends_its_group_and_all_come_back(lost: int) -> None:
    graph, plan = planned("llm", {"llm": "random:qwen3-tiny:0"}, 2)
    async with deployed(graph, plan) as deployment:
        before = await written(deployment, 2)
        starts = [deployment.pid(rank) for rank in (0, 1)]
        asked = {"prompt": (m.Small(value=WORDS[1]),), "logit_bias": (UNENDING,)}
        run = deployment.submit("complete", LONG, inputs=asked)
        await deployment.until(lambda: len(deployment.outputs[run]["text"]) > 2)
        os.kill(starts[lost], signal.SIGKILL)
        end = await deployment.end(run)
        assert end.error is not None
        assert end.error.code == "worker_lost"
        await deployment.until(lambda: deployment.status.state != "ready")
        await deployment.ready()
        assert all(deployment.pid(rank) != starts[rank] for rank in (0, 1))
        assert await written(deployment, 2) == before


async def watched(folder: Path, shards: int) -> Hearing:
    """The telemetry of one recorded run."""
    heard = Hearing(folder / f"heard{shards}")
    graph, plan = planned("llm", {"llm": "random:qwen3-tiny:0"}, shards)
    async with deployed(graph, plan, telemetry=heard.address) as deployment:
        deployment.process.send(Watch(level="full"))
        params = {"seed": 1, "max_tokens": 12, "temperature": 0.0}
        run = deployment.submit("complete", params, inputs={"prompt": (m.Small(value=WORDS[1]),)}, record=True)
        assert (await deployment.end(run)).error is None
        await heard.all_free(shards)
    heard.close()
    return heard


async def test_shards_tell_their_own_times_and_the_first_tells_the_values(tmp_path: Path) -> None:
    alone, both = await watched(tmp_path, 1), await watched(tmp_path, 2)
    work = [one for one in both.others if isinstance(one, t.Forward | t.Launch)]
    parts = [one for one in both.others if isinstance(one, t.ShardWork)]
    assert {one.rank for one in work} == {0}
    assert {(one.rank, one.of) for one in parts} == {(1, 0)}
    assert [one.number for one in parts] == sorted({one.number for one in work})
    spans = {one.number: (one.taken, one.finished) for one in work}
    apart = [one for one in parts if one.started == spans[one.number][0]]
    assert not apart, "its own readings of the clock, not the first shard's"
    assert all(one.started <= one.finished for one in parts)
    assert set(both.latest) == {0, 1}
    # Values are whole, on the first shard as on a rank without shards.
    seen = {
        shards: {(one.walk, one.source, one.step, one.iteration): one for one in found.samples}
        for shards, found in {1: alone, 2: both}.items()
    }
    assert {one.rank for one in both.samples} == {0}
    assert len(seen[2]) == len(both.samples), "each value once"
    assert seen[1].keys() == seen[2].keys()
    for place, one in seen[1].items():
        other = seen[2][place]
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.picked == pytest.approx(other.picked, abs=1e-4)
    assert any(one.shape for one in both.samples), "else it tests less"
