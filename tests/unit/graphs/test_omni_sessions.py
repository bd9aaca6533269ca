"""Qwen3-Omni in sessions: the thinker and the talker keep the conversation, so that each run sends its turn alone.

The bundled graph is changed as docs/spoken.md says. Every answer is then the one that `transformers` gives to the whole
conversation (`tests/golden/qwen3_omni/make_sessions.py`), and that a deployment gives which reads all of it anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.golden.qwen3_omni import sessions, whole
from tests.support.checkpoints import imported
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_omni_talks import BAR, CUT, GREEDY, ONE, TWO, on_cpus, part, samples
from walkgraph.graph import codec

PARAMS: Mapping[str, Any] = {**GREEDY, "every": 2}


def in_sessions(document: dict[str, Any]) -> dict[str, Any]:
    """The task `chat` of the bundled graph, in sessions."""
    states, nodes, walks, tasks = (document[kind] for kind in ("states", "nodes", "walks", "tasks"))
    states |= {"turns": {"kind": "paged_kv", "capacity": "context"}, "reached": {"kind": "tensor"}}
    for state in ("thinker", "read", "turns", "reached"):
        states[state]["scope"] = "session"
    talker = nodes["talker"]
    nodes["listener"] = {
        **talker,
        "states": {**talker["states"], "kv": "turns", "heard": "reached"},
        "params": {"opening": False},
    }
    listen = walks["listen"]
    listen["body"] = [
        "projection",
        "listener",
        {"fork": "turns", "into": "talker"},
        {"fork": "reached", "into": "heard"},
        "talker",
    ]
    listen["edges"] = [[source, target.replace("talker.", "listener.")] for source, target in listen["edges"]]
    walks["decode"]["results"] = {"token": "thinker.token", "said": "thinker.said"}
    walks["close"] = {
        "inputs": {"token": "tokens: int[1]", "said": "tokens: int[1]"},
        "body": ["end_mark", "thinker"],
        "edges": [["@in.token", "end_mark.token"], ["@in.said", "end_mark.said"], ["end_mark.ids", "thinker.ids"]],
    }
    tasks["chat"]["steps"]["thinker"].append(
        {"walk": "close", "with": {"token": "decode.token", "said": "decode.said"}}
    )
    for task in tasks.values():
        task["session"] = {}
    return document


def with_codes(document: dict[str, Any]) -> dict[str, Any]:
    """The frames of speech are an output."""
    speak = document["walks"]["speak"]
    speak["edges"].append({"from": "code_predictor.codes", "to": "@out.codes", "each": True})
    document["tasks"]["chat"]["outputs"].append("codes")
    return document


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("roots")
    return root, json.dumps(imported(whole.folder(root))[1].graph)


def deployed(published: tuple[Path, str], name: str, *, keeps: bool = True, beside: str = "talker") -> LocalDeployment:
    """`beside`: the node with which the new one is placed."""
    root, graph = published
    document = with_codes(in_sessions(json.loads(graph)))
    placement = on_cpus(name)
    nodes = [(*one.nodes, "listener") if beside in one.nodes else one.nodes for one in placement.groups]
    groups = [one.model_copy(update={"nodes": mine}) for one, mine in zip(placement.groups, nodes, strict=True)]
    placed = placement.model_copy(update={"groups": tuple(groups)})
    return LocalDeployment(codec.load(document), placed, threads=1, prefix_cache=keeps, roots=(root,))


def answered(local: LocalDeployment, names: Sequence[str], asked: Sequence[whole.Part], turn: int) -> list[Any]:
    """The outputs of one turn of several sessions beside each other."""
    params = {**PARAMS, "system_prompt": ""}
    for session in names:
        parts = [part(one) for one in asked]
        local.submit(f"{session} {turn}", "chat", params, parts=parts, session=session)
    local.run()
    assert not local.failed
    made: list[Any] = []
    for session in names:
        local.release(f"{session} {turn}")
        outputs = local.outputs.pop(f"{session} {turn}")
        made.append({name: outputs[name] for name in ("text", "audio", "codes")})
    return made


def compare(turn: int, outputs: Mapping[str, list[Any]]) -> None:
    with np.load(sessions.ANSWERS) as answers:
        given = {key: answers[f"{turn}: {key}"] for key in ("ids", "codes", "waveform", "samples")}
    written = whole.tokenizer().decode(given["ids"].tolist(), skip_special_tokens=True)
    assert "".join(outputs["text"]).rstrip(CUT) == written.rstrip(CUT)
    assert torch.cat(list(outputs["codes"])).tolist() == given["codes"].tolist()
    spoken = samples(outputs["audio"])
    assert len(spoken) == given["samples"]
    assert np.abs(spoken[:: whole.KEPT] - given["waveform"]).max() < BAR


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("name", [ONE, TWO])
def test_a_session_answers_as_the_published_code_does_to_the_whole_conversation(
    published: tuple[Path, str], name: str, keeps: bool
) -> None:
    local = deployed(published, name, keeps=keeps)
    for turn, asked in enumerate(sessions.ASKED):
        [mine] = answered(local, ["a"], asked, turn)
        compare(turn, mine)
        # These find what the first one read, if that is kept.
        for outputs in answered(local, ["b", "c"], asked, turn):
            compare(turn, outputs)
    for engine in local.engines.values():
        engine.states.audit()


def test_turns_may_be_kept_on_another_rank_than_the_answers(published: tuple[Path, str]) -> None:
    local = deployed(published, TWO, beside="thinker")
    for turn, asked in enumerate(sessions.ASKED[:2]):
        [mine] = answered(local, ["a"], asked, turn)
        compare(turn, mine)
    for walk in local.plan.walks:
        assert [edge.index for edge in walk.edges] == [*range(len(walk.edges))]
