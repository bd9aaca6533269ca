"""The talker and the code predictor against the published code, on the same weights, through our loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni import speaking
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.abi.calls import Call, StateKey
from walkgraph.engine.engine import Engine
from walkgraph.layers.sampling import sample, scores
from walkgraph.layers.sampling_params import SamplingParams
from walkgraph.models.qwen3_omni.talker import operators
from walkgraph.models.qwen3_omni.talker.config import TALKER_TINY

NODES = {
    "talker": (
        "walkgraph.models.qwen3_omni.talker.operators:Talker",
        {"kv": "spoken", "heard": "heard", "seen": "seen"},
    ),
    "others": ("walkgraph.models.qwen3_omni.talker.operators:CodePredictor", {}),
    "project": ("walkgraph.models.qwen3_omni.talker.operators:TalkerProjection", {}),
}
STATES = {"kv": "spoken", "heard": "heard", "seen": "seen"}
GREEDY = {"temperature": 0.0, "top_k": 50, "top_p": 1.0}
PROMPTS = list(speaking.PROMPTS)
CLOSE = 1e-4
APART = 1e-4
"""Ten times what the logits are off: the likelier code is likelier in both."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return engine_at(speaking.folder(tmp_path_factory.mktemp("roots")))


def engine_at(folder: Path) -> Engine:
    plan = plan_of(NODES, source=f"checkpoint:{folder.name}", family="qwen3_omni")
    return engine_of(plan, weights_roots=[folder.parent])


class Forced:
    """Takes the place of `sample`: keeps the logits, and gives the published code's codes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._answers = [speaking.answer(name) for name in names]
        self.first: list[Tensor] = []
        self.further: list[Tensor] = []

    def __call__(self, logits: Tensor, params: SamplingParams, *counts: Any) -> Tensor:
        codes = torch.stack([one.codes for one in self._answers])
        if logits.shape[1] == TALKER_TINY.stack.vocab:
            self.first.append(logits)
            return codes[:, len(self.first) - 1, 0]
        frame, place = divmod(len(self.further), TALKER_TINY.groups - 1)
        self.further.append(logits)
        return codes[:, frame, place + 1]


def pieces(name: str) -> Tensor:
    """Positions as the thinker tells them: each piece counted from its own start. Here a turn is one piece."""
    heard, positions = torch.tensor(speaking.PROMPTS[name].heard), speaking.answer(name).positions
    starts = (heard == TALKER_TINY.spoken.im_start).cumsum(0) - 1
    return positions - positions[heard == TALKER_TINY.spoken.im_start][starts]


def listen(engine: Engine, names: Sequence[str], *, positions: bool = True) -> list[Tensor]:
    """Read the prompts in one batch; gives each run's first `frame`."""
    calls: list[Call] = []
    for name in names:
        prompt, media = speaking.PROMPTS[name], speaking.answer(name).media
        given: dict[str, Any] = {"ids": torch.tensor(prompt.heard)}
        if len(media):
            [made] = outputs(engine, call("project", {"hidden": media}, run=name))
            given["media"] = made["rows"]
        if positions:
            given["positions"] = pieces(name)
        calls.append(call("talker", given, run=name, states=STATES, speaker=prompt.speaker, **ASKED))
    return [made["begin"] for made in outputs(engine, *calls)]


ASKED: Mapping[str, Any] = {**GREEDY, "repetition_penalty": 1.05, "frames_per_token": 0, "min_frames": 0}


def speak(engine: Engine, names: Sequence[str], frames: list[Tensor]) -> Iterator[list[dict[str, Any]]]:
    """Frame after frame, those of all runs in one batch."""
    for at in range(speaking.FRAMES):
        calls = []
        for name, frame in zip(names, frames, strict=True):
            words = speaking.answer(name).words
            given = {"frame": frame, **({"text": torch.tensor(words[at : at + 1])} if at < len(words) else {})}
            calls.append(call("talker", given, run=name, states=STATES, iteration=(at,), **ASKED))
        said = outputs(engine, *calls)
        made = outputs(
            engine,
            *(
                call("others", {"code": one["code"], "hidden": one["hidden"]}, run=name, iteration=(at,), **GREEDY)
                for name, one in zip(names, said, strict=True)
            ),
        )
        frames = [one["embedding"] for one in made]
        yield [{**one, **other} for one, other in zip(said, made, strict=True)]


def done(engine: Engine, names: Sequence[str]) -> None:
    for name in names:
        engine.drop(name)


@pytest.mark.parametrize("names", [*([name] for name in PROMPTS), PROMPTS], ids=[*PROMPTS, "together"])
def test_logits_of_forced_frames_are_the_published_ones(
    engine: Engine, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    forced = Forced(names)
    frames = listen(engine, names)
    monkeypatch.setattr(operators, "sample", forced)
    list(speak(engine, names, frames))
    done(engine, names)
    first, further = torch.stack(forced.first, 1), torch.stack(forced.further, 1)
    for row, name in enumerate(names):
        wanted = speaking.answer(name)
        open_ = first[row].isfinite()
        assert open_.sum(1).tolist() == [TALKER_TINY.stack.vocab - 1024 + 1] * speaking.FRAMES
        torch.testing.assert_close(first[row][open_], wanted.first[open_], atol=CLOSE, rtol=0)
        torch.testing.assert_close(further[row].view(wanted.further.shape), wanted.further, atol=CLOSE, rtol=0)


def least_gap(logits: Tensor) -> float:
    """The least distance between the two likeliest."""
    top = logits.topk(2).values
    return float((top[..., 0] - top[..., 1]).min())


@pytest.mark.parametrize("names", [*([name] for name in PROMPTS), PROMPTS], ids=[*PROMPTS, "together"])
def test_greedy_frames_are_the_published_ones(
    engine: Engine, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Tensor] = []

    def watched(logits: Tensor, params: SamplingParams, *counts: Tensor) -> Tensor:
        judged.append(scores(logits, params, *counts))
        return sample(logits, params, *counts)

    monkeypatch.setattr(operators, "sample", watched)
    made = list(speak(engine, names, listen(engine, names)))
    done(engine, names)
    assert min(map(least_gap, judged)) > APART, "no choice is so close that both would be right"
    for row, name in enumerate(names):
        codes = torch.cat([frame[row]["codes"] for frame in made])
        assert codes.tolist() == speaking.answer(name).codes.tolist(), name
        assert [bool(frame[row]["stop"]) for frame in made] == [False] * speaking.FRAMES


def test_prompts_without_pictures_need_no_positions(engine: Engine) -> None:
    for name in ("text", "sound"):
        made = list(speak(engine, [name], listen(engine, [name], positions=False)))
        done(engine, [name])
        assert torch.cat([one["codes"] for [one] in made]).tolist() == speaking.answer(name).codes.tolist()


def test_a_pictures_positions_count(engine: Engine) -> None:
    name = "picture and sound"
    made = list(speak(engine, [name], listen(engine, [name], positions=False)))
    done(engine, [name])
    assert torch.cat([one["codes"] for [one] in made]).tolist() != speaking.answer(name).codes.tolist()


# ── draws ──

DRAWS, TOGETHER = 2000, 100
SAMPLED = {**ASKED, "temperature": 0.9, "top_k": 50, "top_p": 1.0}
FURTHER = {"temperature": 1.0, "top_k": 50, "top_p": 0.8}


def drawn_alike(counts: Tensor, chances: Tensor) -> None:
    """A chi-square test; the seeds are fixed, so it always comes out the same."""
    wanted = chances.double() * counts.sum()
    assert not counts[wanted == 0].any(), "nothing is drawn that the published code excludes"
    rare = wanted < 5
    observed, expected = (torch.cat([x[~rare], x[rare].sum()[None]]).double() for x in (counts, wanted))
    chi = ((observed - expected) ** 2 / expected.clamp(min=1e-9)).sum()
    freedom = len(expected) - 1
    assert freedom > 8
    assert chi < freedom + 3.1 * (2 * freedom) ** 0.5, "less than one set of draws in a thousand would be as far off"


def test_codes_are_drawn_as_often_as_the_published_code_draws_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, at = "text", speaking.DRAWN_AT
    answer, vocab = speaking.answer(name), TALKER_TINY.stack.vocab
    frames = listen(engine, [name])
    with monkeypatch.context() as forcing:
        forcing.setattr(operators, "sample", Forced([name]))
        for number, made in enumerate(speak(engine, [name], frames)):
            if number == at - 1:
                frame = made[0]["embedding"]
                break
    given = {"frame": frame, "text": torch.tensor(answer.words[at : at + 1])}
    first, second = torch.zeros(vocab), torch.zeros(TALKER_TINY.predictor.vocab)
    for start in range(0, DRAWS, TOGETHER):
        runs = [f"r{start + n}" for n in range(TOGETHER)]
        for run in runs:
            for state in STATES.values():
                engine.transfers.fork(StateKey(name, state), StateKey(run, state))
        calls = [
            call("talker", given, run=run, states=STATES, iteration=(at,), draws=9000 + start + n, **SAMPLED)
            for n, run in enumerate(runs)
        ]
        said = outputs(engine, *calls)
        first += torch.bincount(torch.cat([one["code"] for one in said]), minlength=vocab)
        frame_of = {"code": answer.codes[at, :1], "hidden": said[0]["hidden"]}
        calls = [
            call("others", frame_of, run=run, iteration=(at,), draws=70_000 + start + n, **FURTHER)
            for n, run in enumerate(runs)
        ]
        second += torch.bincount(
            torch.cat([one["codes"][:, 1] for one in outputs(engine, *calls)]), minlength=len(second)
        )
        done(engine, runs)
    done(engine, [name])
    drawn_alike(first, answer.first_chances)
    drawn_alike(second, answer.second_chances)
    with pytest.raises(AssertionError):
        drawn_alike(first, answer.first_chances.roll(1))
