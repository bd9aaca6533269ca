"""A language model that reads on one rank and writes on another, in real processes on CPUs: its answers are those of
one rank, and when either rank dies, its runs end and nothing of them is left."""

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.deployment import KV_BYTES, Deployment, deployed
from tests.support.hearing import Hearing
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import decode
from walkgraph.placement.tables import Plan
from walkgraph.wire import messages as m
from walkgraph.wire.watching import Watch

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = Path(__file__).resolve().parents[2]
TOGETHER, APART = "llm_one_gpu", "llm_prefill_apart_two_gpus"
LONG = " ".join(f"{number} boats" for number in range(420))[:3600]


def planned(placement: str) -> tuple[Graph, Plan]:
    document = json.loads((ROOT / "graphs" / "llm.json").read_text())
    document["weights"]["llm"]["source"] = "random:qwen3-tiny:0"
    where = json.loads((ROOT / "placements" / f"{placement}.json").read_text())
    for rank in where["ranks"]:
        rank["device"] = "cpu"
    graph = codec.load(json.dumps(document).encode())
    made = assemble(Assignment(graph, decode(where)), catalogue())
    kept = tuple(msgspec.structs.replace(rank, kv_bytes=KV_BYTES) for rank in made.ranks)
    return graph, msgspec.structs.replace(made, ranks=kept)


def ask(deployment: Deployment, prompt: str, seed: int, tokens: int) -> str:
    params = {"seed": seed, "max_tokens": tokens, "temperature": 1.0}
    return deployment.submit("complete", params, inputs={"prompt": (m.Small(value=prompt),)})


async def written(deployment: Deployment) -> dict[int, Any]:
    """The answers to prompts of all lengths at once, of which some begin alike."""
    draw = random.Random(1)
    asked = [(LONG[: draw.randrange(20, len(LONG))], draw.choice((2, 9, 30))) for _ in range(12)]
    runs = [ask(deployment, prompt, seed, tokens) for seed, (prompt, tokens) in enumerate(asked)]
    ends = [await deployment.end(run) for run in runs]
    assert [end.error for end in ends] == [None] * len(runs)
    return {number: dict(deployment.outputs[run]) for number, run in enumerate(runs)}


async def test_two_ranks_answer_as_one_does() -> None:
    found: dict[str, list[dict[int, Any]]] = {}
    for placement in (TOGETHER, APART):
        async with deployed(*planned(placement)) as deployment:
            # The second time, both ranks know the prompts.
            found[placement] = [await written(deployment) for _ in range(2)]
    assert found[TOGETHER] == found[APART]
    assert len({repr(answer) for answer in found[APART][0].values()}) > 8, "else it tests less"


@pytest.mark.parametrize("lost", [0, 1])
async def test_a_rank_that_dies_ends_the_runs_that_are_on_their_way(lost: int, tmp_path: Path) -> None:
    heard = Hearing(tmp_path / "heard")
    async with deployed(*planned(APART), telemetry=heard.address) as deployment:
        deployment.process.send(Watch(level="summary"))
        before = await written(deployment)
        starts = [deployment.pid(rank) for rank in (0, 1)]
        runs = [ask(deployment, LONG[number:], number, 8000) for number in range(6)]
        await deployment.until(lambda: any(deployment.outputs[run]["text"] for run in runs))
        os.kill(starts[lost], signal.SIGKILL)
        for run in runs:
            error = (await deployment.end(run)).error
            assert error is None or error.code == "worker_lost"
        await deployment.ready()
        assert (deployment.pid(lost) == starts[lost], deployment.pid(1 - lost) == starts[1 - lost]) == (False, True)
        assert await written(deployment) == before
        await heard.all_free(2)
    heard.close()
