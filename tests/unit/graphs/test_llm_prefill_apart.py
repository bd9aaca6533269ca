"""A language model that reads on one rank and writes on another: the answers are those of one rank, and what it has
read travels while it still reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_orpheus_on_ranks import on_cpus
from walkgraph.abi.calls import StateKey
from walkgraph.engine.calls.schedule import CPU_MIX
from walkgraph.graph import codec
from walkgraph.ids import Rank
from walkgraph.models.llm.presets import LLM
from walkgraph.wire import messages as m
from walkgraph.worker.events import Send

APART, TOGETHER = "llm_prefill_apart_two_gpus", "llm_one_gpu"
LONG = "".join(f"{number} is followed by {number + 1}. " for number in range(60))[:1100]
"""More than four parts of a prompt."""
SHORT = "Once upon a time"


def deployment(placement: str, **engine: Any) -> LocalDeployment:
    document = json.loads(GRAPHS["llm"].read_text())
    document["weights"]["llm"]["source"] = "random:qwen3-tiny:0"
    return LocalDeployment(codec.load(document), on_cpus(placement), threads=1, mix=CPU_MIX, **engine)


def submit(local: LocalDeployment, run: str, prompt: str, **params: float) -> None:
    params = {"max_tokens": 12, "temperature": 0, "seed": 1, **params}
    ends = torch.tensor([(stop, -100.0) for stop in LLM["qwen3-tiny"].stops])
    local.submit(run, "complete", params, {"prompt": [prompt], "logit_bias": [ends]}, outputs=["text"])


def written(local: LocalDeployment, run: str, prompt: str, **params: float) -> list[str]:
    submit(local, run, prompt, **params)
    local.run()
    assert local.failed == {}
    return local.outputs[run]["text"]


def carried(sends: list[Send], run: str) -> tuple[list[int], int]:
    """Tokens of the cache in each part and in the last one, and the number of offers."""
    values = [
        one.value
        for one in sends
        if isinstance(one.message, m.StatePart | m.Deliver) and one.message.run == run and isinstance(one.value, dict)
    ]
    return [one["kv.0"].shape[2] for one in values if "kv.0" in one], sum(
        "names" in one and "kv.0" not in one for one in values
    )


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("prompt", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_those_of_one_rank(prompt: str, temperature: float, resident: bool) -> None:
    ways = [deployment(placement, resident=resident) for placement in (TOGETHER, APART)]
    one, two = (written(local, "a", prompt, temperature=temperature, repetition_penalty=1.2) for local in ways)
    assert len(one) == 12
    assert one == two


def test_what_was_read_travels_while_the_rest_is_read() -> None:
    local = deployment(APART)
    submit(local, "a", LONG)
    while not carried(local.sends, "a")[0] and local.turn():
        pass
    (sequence,) = local.engines[Rank(0)].states.paged[StateKey("a", "main")].sequences
    assert sequence.length == 256
    local.run()
    tokens, offers = carried(local.sends, "a")
    assert (tokens[:4], sum(tokens), offers) == ([256] * 4, len(LONG), 0)


def test_a_prompt_that_both_ranks_know_does_not_travel_again() -> None:
    local, alone = deployment(APART), deployment(TOGETHER)
    for run, prompt in (("a", LONG), ("b", LONG), ("c", LONG + SHORT)):
        assert written(local, run, prompt) == written(alone, run, prompt)
        local.release(run)
    known = len(LONG) // 16 * 16
    assert [sum(carried(local.sends, run)[0]) for run in "bc"] == [len(LONG) - known, len(LONG + SHORT) - known]


def test_many_at_once_take_nothing_from_each_other() -> None:
    ways = [deployment(placement) for placement in (TOGETHER, APART)]
    for local in ways:
        for number in range(6):
            submit(local, f"r{number}", LONG[: 100 + 190 * number], max_tokens=4 + 3 * number)
        local.run()
    assert ways[0].outputs == ways[1].outputs
    for number in range(6):
        ways[1].release(f"r{number}")
    for engine in ways[1].engines.values():
        assert engine.pools.pages()[0] == engine.pools.pages()[1]
        engine.states.audit()


@pytest.mark.parametrize("steps", range(1, 7))
def test_nothing_is_left_of_a_run_that_is_cancelled_on_its_way(steps: int) -> None:
    local = deployment(APART)
    submit(local, "a", LONG)
    for _ in range(steps):
        local.turn()
    local.release("a")
    local.run()
    assert "text" not in local.outputs["a"] or len(local.outputs["a"]["text"]) < 12
    for rank in (Rank(0), Rank(1)):
        assert not local.moves[rank].leaving
        assert not [*local.engines[rank].states.keys_of("a")]
        local.engines[rank].states.audit()
    assert written(local, "b", SHORT) == written(deployment(TOGETHER), "b", SHORT)
