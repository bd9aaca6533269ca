"""Talks with a tiny thinker of a folder, through an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.golden.qwen3_omni import thinking
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.abi.calls import Call
from walkgraph.engine.engine import Engine

NODES = {"thinker": ("walkgraph.models.qwen3_omni.thinker.operators:Thinker", {"kv": "main", "seen": "seen"})}
GREEDY: Mapping[str, Any] = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "logits": True,
}


def loaded(root: Path, name: str) -> Engine:
    return engine_of(plan_of(NODES, source=f"checkpoint:{name}", kv_bytes=1 << 23), weights_roots=(root,))


def appended(inputs: Mapping[str, Tensor], run: str, at: int = 0) -> Call:
    return call("thinker", inputs, run=run, states={"kv": "main", "seen": "seen"}, iteration=(at,), **GREEDY)


def pieces(talk: str) -> list[Mapping[str, Tensor]]:
    return [
        {"ids": torch.tensor(thinking.ids_of(one))} if isinstance(one, str) else thinking.rows(talk, index, one)
        for index, one in enumerate(thinking.TALKS[talk])
    ]


def read(engine: Engine, talks: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Append the talks, of runs and their names, beside each other, piece by piece."""
    left = {run: pieces(talk) for run, talk in talks.items()}
    found: dict[str, list[dict[str, Any]]] = {run: [] for run in talks}
    while any(left.values()):
        calls = [appended(mine.pop(0), run) for run, mine in left.items() if mine]
        for one, given in zip(calls, outputs(engine, *calls), strict=True):
            found[one.run].append(given)
    return found
