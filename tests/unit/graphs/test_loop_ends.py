"""Why a loop ended: equal when it runs on the device, when it is stepped, on one rank and on two."""

import json
from typing import Any

import pytest

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS
from tests.unit.graphs.test_omni_talks import on_cpus
from walkgraph.graph import codec
from walkgraph.models.qwen3_omni.talker import operators

SEEDS = range(6)
ANSWER, FRAMES = ("decode", "answer"), ("speak", "frames")


def deployment(placement: str, *, resident: bool) -> LocalDeployment:
    document = json.loads(GRAPHS["qwen3_omni"].read_text())
    document["weights"]["omni"]["source"] = "random:qwen3-omni-tiny:0"
    document["nodes"]["talker"]["params"]["frames_per_token"] = 1
    return LocalDeployment(codec.load(document), on_cpus(placement), threads=1, resident=resident)


def ends(local: LocalDeployment, **params: Any) -> list[dict[tuple[str, str], tuple[int, str]]]:
    """The ends of the loops of one run per seed."""
    for seed in SEEDS:
        asked = {"max_tokens": 4, "temperature": 1.0, "seed": seed, **params}
        local.submit(f"{params} {seed}", "chat", asked, {"text": ["Hello"]})
    local.run()
    assert not local.failed
    found = []
    for run in [f"{params} {seed}" for seed in SEEDS]:
        local.release(run)
        told = [one for rank in local.ends[run] for one in rank.loops]
        found.append({(one.walk, one.loop): (one.iterations, one.reason) for one in told})
        assert len(found[-1]) == len(told), "one rank tells of a loop"
    return found


@pytest.mark.parametrize("placement", ["qwen3_omni_one_gpu", "qwen3_omni_two_gpus"])
def test_speech_ends_by_its_code_its_guard_or_its_bound(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_AFTER", 3)
    told = []
    for resident in (True, False):
        local = deployment(placement, resident=resident)
        frames = next(loop for walk in local.plan.walks if walk.name == "speak" for loop in walk.loops)
        assert frames.resident is resident, frames.why
        told.append([*ends(local, max_frames=40), *ends(local, max_frames=2)])
    assert told[0] == told[1]
    answers, speeches = ({one[loop] for one in told[0]} for loop in (ANSWER, FRAMES))
    assert {reason for _, reason in answers} == {"stop", "bound"}
    assert {reason for _, reason in speeches} == {"stop", "derailed", "bound"}
    assert {count for count, reason in answers if reason == "bound"} == {3}
    assert {count for count, reason in speeches if reason == "bound"} == {2}
    assert all(count > 3 for count, reason in speeches if reason == "derailed")
