"""A device loop that reads a stream item by item does what the stepped loop does, whatever the pace of either side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support import local
from tests.support.local import LocalDeployment
from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue
from walkgraph.models.qwen3_omni.talker.components import COMPONENTS
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import decode

PLACEMENT: dict[str, Any] = {
    "format": "walkgraph/placement@1",
    "name": "one",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}
DOCUMENT: dict[str, Any] = {
    "format": "walkgraph/graph@1",
    "name": "spoken",
    "weights": {
        "words": {"family": "llm", "source": "random:qwen3-moe-tiny:1"},
        "omni": {"family": "qwen3_omni", "source": "random:qwen3-omni-tiny:2"},
    },
    "states": {
        "text": {"kind": "paged_kv", "capacity": "256"},
        "said": {"kind": "tensor"},
        "speech": {"kind": "paged_kv", "capacity": "256"},
        "heard": {"kind": "tensor"},
        "seen": {"kind": "tensor"},
    },
    "nodes": {
        "prompt": {"component": "llm.prompt", "weights": "words"},
        "llm": {"component": "llm.backbone", "weights": "words", "states": {"kv": "text", "seen": "said"}},
        "talker": {
            "component": "qwen3_omni.talker",
            "weights": "omni",
            "states": {"kv": "speech", "heard": "heard", "seen": "seen"},
        },
        "others": {"component": "qwen3_omni.code_predictor", "weights": "omni"},
    },
    "walks": {
        "prefill": {
            "inputs": {"text": "text"},
            "body": ["prompt", "llm"],
            "edges": [["@in.text", "prompt.text"], ["prompt.ids", "llm.ids"]],
            "results": {"token": "llm.token"},
        },
        "decode": {
            "inputs": {"token": "tokens: int[1]"},
            "body": [{"loop": "words", "times": "words", "body": ["llm"]}],
            "edges": [["@in.token", "llm.token"], ["llm.token", "llm.token"]],
        },
        "listen": {
            "body": ["talker"],
            "edges": [["@stream.turn", "talker.ids"]],
            "results": {"begin": "talker.begin"},
        },
        "speak": {
            "inputs": {"begin": "embeddings: float[1, e]"},
            "body": [
                {
                    "loop": "frames",
                    "times": "frames",
                    "until": "talker.stop",
                    "drop_last": True,
                    "body": ["talker", "others"],
                }
            ],
            "edges": [
                {"from": "@stream.answer", "to": "talker.text", "each": True},
                ["@in.begin", "talker.frame"],
                ["others.embedding", "talker.frame"],
                ["talker.code", "others.code"],
                ["talker.hidden", "others.hidden"],
                {"from": "others.codes", "to": "@out.codes", "each": True},
            ],
        },
    },
    "streams": [
        {"name": "turn", "from": "prompt.ids", "walks": ["prefill"], "chunks": {"policy": "whole"}},
        {
            "name": "answer",
            "from": "llm.token",
            "walks": ["decode"],
            "chunks": {"policy": "fixed", "size": 1, "continue_after_done": True},
            "credits": 4,
        },
    ],
    "tasks": {
        "speak": {
            "inputs": {"text": {"modality": "text"}},
            "outputs": ["codes"],
            "params": {
                "words": {"type": "integer", "default": 5, "min": 0, "max": 64},
                "frames": {"type": "integer", "default": 12, "min": 1, "max": 64},
            },
            "steps": {
                "writer": [
                    {"walk": "prefill", "with": {"text": "@task.text"}},
                    {"walk": "decode", "with": {"token": "prefill.token"}},
                ],
                "speaker": [{"walk": "listen"}, {"walk": "speak", "with": {"begin": "listen.begin"}}],
            },
        }
    },
    "layout": {},
}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "catalogue", declared)


def declared() -> Catalogue:
    return {**catalogue(), **{one.name: one for one in COMPONENTS}}


def deployed(*, resident: bool, **changes: Any) -> LocalDeployment:
    document = codec.load({**DOCUMENT, **changes})
    return LocalDeployment(document, decode(PLACEMENT), threads=1, resident=resident)


def spoken(deployment: LocalDeployment, asked: dict[str, tuple[int, int]]) -> dict[str, list[list[int]]]:
    """Run -> the codes of its frames. `asked`: run -> words after the first one, and frames."""
    for run, (words, frames) in asked.items():
        deployment.submit(run, "speak", {"words": words, "frames": frames, "seed": len(run)}, {"text": [run * 3]})
    deployment.run()
    assert deployment.failed == {}
    return {run: torch.cat(deployment.outputs[run]["codes"]).tolist() for run in asked}


ASKED = {"a": (5, 12), "bb": (20, 9), "ccc": (3, 3), "dddd": (64, 40), "eeeee": (1, 20)}


@pytest.fixture(scope="module")
def stepped() -> dict[str, list[list[int]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "catalogue", declared)
        return spoken(deployed(resident=False), ASKED)


def test_the_loop_runs_on_the_device() -> None:
    plan = assemble(Assignment(codec.load(DOCUMENT), decode(PLACEMENT)), declared())
    [speak] = [walk for walk in plan.walks if walk.name == "speak" and not walk.chunked]
    [loop] = speak.loops
    assert loop.resident
    assert loop.why == (
        "`frames` runs on the device: `talker` and `others` on rank 0, one iteration a launch because `talker.stop` "
        "ends it; `answer` feeds it item by item"
    )


def of_stream(chunks: dict[str, Any]) -> dict[str, Any]:
    turn, answer = DOCUMENT["streams"]
    return {"streams": [turn, {**answer, "chunks": chunks}]}


def of_body(*body: Any, edges: Sequence[Any] = ()) -> dict[str, Any]:
    speak = DOCUMENT["walks"]["speak"]
    [loop] = speak["body"]
    changed = {**speak, "body": [{**loop, "body": [*body]}], "edges": [*speak["edges"], *edges]}
    return {"walks": {**DOCUMENT["walks"], "speak": changed}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (of_stream({"policy": "fixed", "size": 1}), "stream `answer` feeds it in chunks or ends it"),
        (
            of_stream({"policy": "fixed", "size": 2, "continue_after_done": True}),
            "stream `answer` feeds it in chunks or ends it",
        ),
        (
            of_body({"use": "talker", "when": "@loop.index < 90"}, "others"),
            "`talker.stop`",
        ),
    ],
)
def test_other_streams_leave_the_loop_stepped(changes: dict[str, Any], why: str) -> None:
    plan = assemble(Assignment(codec.load({**DOCUMENT, **changes}), decode(PLACEMENT)), declared())
    [loop] = next(walk for walk in plan.walks if walk.name == "speak").loops
    assert not loop.resident
    assert loop.why.startswith("stepped: ")
    assert why in loop.why or "condition" in loop.why


def test_a_component_that_reads_no_items_leaves_the_loop_stepped() -> None:
    known = {name: replace(one, itemwise=()) for name, one in declared().items()}
    plan = assemble(Assignment(codec.load(DOCUMENT), decode(PLACEMENT)), known)
    [loop] = next(walk for walk in plan.walks if walk.name == "speak").loops
    assert (loop.resident, loop.why) == (False, "stepped: stream `answer` feeds it")


def test_resident_runs_say_what_stepped_ones_say(stepped: dict[str, list[list[int]]]) -> None:
    counts = {run: len(codes) for run, codes in stepped.items()}
    assert counts.pop("dddd") == 21, "this speech ends by a code, before the words do"
    assert counts == {run: frames for run, (_, frames) in ASKED.items() if run in counts}
    assert len({str(codes[:3]) for codes in stepped.values()}) == len(ASKED)
    together = deployed(resident=True)
    assert spoken(together, ASKED) == stepped
    alone = deployed(resident=True)
    for run, asked in ASKED.items():
        assert spoken(alone, {run: asked})[run] == stepped[run]
