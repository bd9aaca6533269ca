"""Language models divided over real processes: the same bits on every shard, the numbers of one process, and an error
of ours where a shard dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from msgspec.structs import replace

from tests.support.language import forwarded, read, stepped
from tests.support.shards import in_processes
from tests.unit.collectives.test_host import DTYPES, SHAPES, naive_sum, part
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from tests.unit.graphs.test_llm_writes import deployment, written
from walkgraph import plugins
from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.collectives.distributed import GATHERED_BYTES, DistributedShard
from walkgraph.collectives.host import HostShard
from walkgraph.collectives.joining import join

CPU = torch.device("cpu")
STATES = {"kv": "main", "seen": "seen"}
HOW: dict[str, Any] = {
    "temperature": 1.1,
    "top_k": 0,
    "top_p": 0.97,
    "min_p": 0.0,
    "repetition_penalty": 1.3,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
MODELS = {
    "orpheus-tiny": "walkgraph.models.orpheus.operators:Backbone",
    "qwen3-tiny": "walkgraph.models.llm.operators:Backbone",
    "qwen3-moe-tiny": "walkgraph.models.llm.operators:Backbone",
}
SPREAD = {"a part of each expert": None, "whole experts": ExpertParallel(), "redundant": ExpertParallel(4)}
"""The ways in which shards hold experts."""
STEPS = 12


class Answers(NamedTuple):
    logits: dict[str, Any]
    """Model, way and form -> its logits."""
    tokens: dict[str, list[int]]
    """Model and way -> what a run samples after a prompt; by calls of the real engine."""
    text: list[str]
    """The text that the graph `llm` writes with device loops."""


def answers(shard: Shard) -> Answers:
    logits: dict[str, Any] = {}
    tokens: dict[str, list[int]] = {}
    # More rows than a step has, so that prompts take the layers for many rows.
    ids = torch.randint(0, 256, (2, 34), generator=torch.Generator().manual_seed(1))
    for name, network in MODELS.items():
        for way, how in SPREAD.items() if "moe" in name else [("", None)]:
            # One process has nothing to divide.
            divided = how if shard.count > 1 else None
            model = loaded(name, network, shard, divided)
            for form in (forwarded, read, stepped):
                logits[f"{name} {way} {form.__name__}"] = form(model, ids).numpy()
            tokens[f"{name} {way}"] = sampled(name, network, shard, divided)
    return Answers(logits, tokens, text(shard))


def loaded(name: str, network: str, shard: Shard, how: ExpertParallel | None) -> LanguageModel:
    module, _, attribute = network.removeprefix(f"{plugins.MODELS}.").partition(":")
    shared: dict[Any, Any] = {}
    context = LoadContext(
        device=CPU,
        dtype=torch.float32,
        folder=None,
        shared=shared,
        options={},
        random=(name, 3),
        shard=shard,
        expert_parallel=how,
    )
    plugins.load(plugins.MODELS, module, attribute).load(context)
    return shared[LanguageModel]


def sampled(name: str, network: str, shard: Shard, how: ExpertParallel | None) -> list[int]:
    plan = plan_of({"llm": (network, STATES)}, source=f"random:{name}:3")
    ranks = tuple(replace(rank, expert_parallel=how) for rank in plan.ranks)
    engine = engine_of(replace(plan, ranks=ranks), shard=shard)
    prompt = torch.randint(0, 256, (9,), generator=torch.Generator().manual_seed(2))
    made = outputs(engine, call("llm", {"ids": prompt}, run="a", states=STATES, draws=5, **HOW))
    for at in range(STEPS):
        token = made[-1]["token"]
        made += outputs(engine, call("llm", {"token": token}, run="a", states=STATES, iteration=(at,), draws=5, **HOW))
    return [int(one["token"]) for one in made]


def text(shard: Shard) -> list[str]:
    return written(deployment("qwen3-tiny", shard=shard), "a", max_tokens=STEPS, temperature=1.0)


def answers_of(index: int, count: int, at: str) -> Answers:
    shard = join(Path(at), index, count, CPU)
    try:
        return answers(shard)
    finally:
        shard.close()


@pytest.fixture(scope="module")
def alone() -> Answers:
    return answers(WHOLE)


@pytest.mark.parametrize("count", [2, 4])
def test_shards_answer_as_one_process_does(count: int, alone: Answers, tmp_path: Path) -> None:
    first, *rest = in_processes(count, answers_of, str(tmp_path / "group"))
    for name, logits in first.logits.items():
        wanted = torch.from_numpy(alone.logits[name])
        assert (torch.from_numpy(logits) - wanted).norm() / wanted.norm() < 1e-5, name
        assert all(logits.tobytes() == other.logits[name].tobytes() for other in rest), f"{name}: equal bits"
    for other in (first, *rest):
        assert (other.tokens, other.text) == (alone.tokens, alone.text)
    assert all(len(set(tokens)) > 5 for tokens in alone.tokens.values()), "else it tests less"


def collected(index: int, count: int, at: str, form: str) -> list[Any]:
    make = partial(DistributedShard, device=CPU, patience=60.0) if form == "distributed" else HostShard
    shard = make(Path(at), index, count)
    try:
        return [
            found.view(torch.uint8).numpy() if found.numel() else b""
            for dtype in DTYPES
            for shape in SHAPES
            for mine in (part(index, shape, dtype),)
            for found in (shard.sum(mine), shard.gather(mine), shard.gather(mine, 0))
        ]
    finally:
        shard.close()


@pytest.mark.parametrize("form", ["host", "distributed"])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_collectives_are_the_naive_ones_in_every_process(form: str, count: int, tmp_path: Path) -> None:
    every = in_processes(count, collected, str(tmp_path / "group"), form)
    wanted = [bits(found) for dtype in DTYPES for shape in SHAPES for found in naive(count, shape, dtype)]
    for found in every:
        assert [bytes(one) for one in found] == wanted


def naive(count: int, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[torch.Tensor]:
    parts = [part(index, shape, dtype) for index in range(count)]
    yield naive_sum(parts)
    yield torch.cat(parts, -1)
    yield torch.cat(parts, 0)


def bits(x: torch.Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes() if x.numel() else b""


def large(index: int, count: int, at: str) -> bytes:
    shard = DistributedShard(Path(at), index, count, device=CPU, patience=60.0)
    total = shard.sum(torch.full((GATHERED_BYTES // 4 + 1,), 1.0 + index))
    shard.close()
    return bits(total[:3])


def test_large_parts_are_summed_by_the_library(tmp_path: Path) -> None:
    assert in_processes(2, large, str(tmp_path / "group")) == [bits(torch.full((3,), 3.0))] * 2


def alone_in_a_group(index: int, count: int, at: str) -> None:
    DistributedShard(Path(at), index, 2, device=CPU, patience=0.1)


def test_a_shard_that_does_not_come_is_not_waited_for_without_end(tmp_path: Path) -> None:
    assert in_processes(1, alone_in_a_group, str(tmp_path / "group")) == ["ShardLost"]


def left(index: int, count: int, at: str, how: int, patience: float) -> None:
    shard = HostShard(Path(at), index, count, patience=patience)
    shard.sum(torch.ones(2))
    if index == 1:
        os.kill(os.getpid(), how)
    for _ in range(2):
        shard.sum(torch.ones(2))


@pytest.mark.parametrize(("how", "patience"), [(signal.SIGKILL, 60.0), (signal.SIGSTOP, 1.0)])
def test_a_dead_or_stopped_shard_ends_the_others_wait(how: int, patience: float, tmp_path: Path) -> None:
    found = in_processes(3, left, str(tmp_path / "group"), int(how), patience, asked=(0, 2))
    assert found == ["ShardLost"] * 2
