"""Qwen3-Omni in sessions: the thinker's conversation stays between runs, so that each sends its own turn alone.

The bundled graph is changed as a user would: the thinker's states belong to sessions, and a run ends the answer's turn.
The talker hears the turn that it answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from tests.golden.qwen3_omni import whole
from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_omni_talks import GREEDY, ONE, TWO, on_cpus, part
from walkgraph.abi.calls import StateKey
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn

ASKED: Sequence[Sequence[whole.Part]] = (["Look: ", (64, 96), "what is it?"], [9000, "And?"], [whole.BRIEF])
"""The turns of a session: a picture, sound, and a film."""


def deployed(name: str, *, keeps: bool = True) -> LocalDeployment:
    document = json.loads(GRAPHS["qwen3_omni"].read_text().replace("-30b-a3b:0", "-tiny:0"))
    for state in ("thinker", "read"):
        document["states"][state]["scope"] = "session"
    chat, converse = (document["tasks"][task] for task in ("chat", "converse"))
    document["walks"]["close"] = {"body": ["end_mark", "thinker"], "edges": [["end_mark.ids", "thinker.ids"]]}
    closed = {"walk": "close"}
    begun, decoded = chat["steps"]["thinker"][-2:]
    chat["steps"]["thinker"].append(closed)
    # The twin: all turns in one run, each answered as it comes.
    [turns, *_] = converse["steps"]["thinker"]
    turns["user"] += [begun, decoded, closed]
    converse["steps"]["thinker"] = [turns]
    for task in document["tasks"].values():
        task["session"] = {}
    return LocalDeployment(codec.load(json.dumps(document).encode()), on_cpus(name), threads=1, prefix_cache=keeps)


def answered(local: LocalDeployment, sessions: Sequence[str], asked: Sequence[whole.Part], turn: int) -> list[Any]:
    """The outputs of one turn of several sessions beside each other."""
    params = {**GREEDY, "system_prompt": "", "every": 2}
    for session in sessions:
        parts = [part(one) for one in asked]
        local.submit(f"{session} {turn}", "chat", params, parts=parts, session=session)
    local.run()
    assert not local.failed
    made: list[Any] = []
    for session in sessions:
        local.release(f"{session} {turn}")
        outputs = local.outputs.pop(f"{session} {turn}")
        made.append({name: outputs[name] for name in ("text", "audio")})
    return made


def kept(local: LocalDeployment, session: str) -> dict[str, torch.Tensor]:
    return local.engines[next(iter(local.engines))].transfers.export(StateKey(f"session:{session}", "thinker"))


def test_a_session_goes_on_from_turn_to_turn_with_media_and_speech() -> None:
    one, two, plain = deployed(ONE), deployed(TWO), deployed(ONE, keeps=False)
    for turn, asked in enumerate(ASKED):
        # The second session finds what the first one read, if that is kept.
        [mine] = answered(one, ["a"], asked, turn)
        assert mine["text"]
        assert mine["audio"]
        beside = answered(one, ["b", "c"], asked, turn)
        others = [answered(local, ["a"], asked, turn)[0] for local in (two, plain)]
        assert [mine] * 4 == [*beside, *others]
    whole_ = Conversation(tuple(Turn("user", tuple(map(part, asked))) for asked in ASKED))
    plain.submit("twin", "converse", {**GREEDY, "every": 2}, {"messages": [whole_]}, outputs=["text"], session="twin")
    plain.run()
    assert not plain.failed
    got, wanted = kept(plain, "a"), kept(plain, "twin")
    for name in ("counters", "kv.0"):
        torch.testing.assert_close(got[name], wanted[name].to(got[name]), atol=1e-4, rtol=0)
    for local in (one, two, plain):
        for engine in local.engines.values():
            engine.states.audit()
