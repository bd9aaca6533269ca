"""The speaker's operators on tiny random weights: a device loop speaks what single calls speak, alone and together, and
what the definition says; and what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import ChunkInfo, StateKey
from walkgraph.abi.operator import LoadContext
from walkgraph.chunking import fixed
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import LoopCall, LoopOutput
from walkgraph.models.voice.codec import Past
from walkgraph.models.voice.presets import voice_config
from walkgraph.models.voice.weights import codec_of, speaker_of
from walkgraph.starters.voice.plain import spoken as spoken_plainly

torch.set_num_threads(1)
STATES = {"kv": "frames", "heard": "heard"}
PAST = {"past": "past"}
NODES = {
    "tokenizer": ("walkgraph.models.voice.operators:Tokenizer", dict[str, str]()),
    "speaker": ("walkgraph.models.voice.operators:Speaker", STATES),
    "vocoder": ("walkgraph.models.voice.operators:Vocoder", PAST),
}
TINY = voice_config("voice-tiny")
TEXTS = {"a": "cab 42", "bb": "x, y", "ccc": "q"}
MOST = 80


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:voice-tiny:3", kv_bytes=1 << 22, family="voice"))


def context() -> LoadContext:
    cpu = torch.device("cpu")
    return LoadContext(device=cpu, dtype=torch.float32, folder=None, shared={}, options={}, random=("voice-tiny", 3))


def ids_of(engine: Engine, text: str) -> Tensor:
    return outputs(engine, call("tokenizer", {"text": text}))[0]["ids"]


def heard(engine: Engine, run: str) -> Tensor:
    """Give a run its text; returns what stands for the frame before the first one."""
    return outputs(engine, call("speaker", {"ids": ids_of(engine, TEXTS[run])}, run=run, states=STATES))[0]["token"]


def how(temperature: float) -> Mapping[str, Any]:
    return {"temperature": temperature, "top_k": 0, "top_p": 1.0}


def seed(run: str) -> int:
    return 101 + 7 * sum(run.encode())


def spoken(engine: Engine, runs: Sequence[str], temperature: float) -> dict[str, list[int]]:
    """Call by call, those of all runs in one batch; a run ends with its last frame."""
    last = {run: heard(engine, run) for run in runs}
    made: dict[str, list[int]] = {run: [] for run in runs}
    going = list(runs)
    for at in range(MOST):
        calls = [
            call("speaker", {"token": last[run]}, run=run, states=STATES, iteration=(at,), draws=seed(run))
            for run in going
        ]
        for one in calls:
            one.params = how(temperature)
        for run, one in zip(list(going), outputs(engine, *calls) if calls else [], strict=True):
            last[run] = one["token"]
            made[run].append(int(one["code"]))
            if one["stop"]:
                going.remove(run)
    assert not going
    for run in runs:
        engine.drop(run)
    return made


def entry(run: str, begin: Tensor, temperature: float) -> LoopCall:
    """The same frames as one device loop."""
    states = {slot: StateKey(run, state) for slot, state in STATES.items()}
    carried = LoopInput("token", "value", begin, carried=(0, "token"))
    use = WrittenUse("speaker", (carried,), dict(how(temperature)), {}, states, seed(run))
    collected = (LoopOutput("codes", 0, "code", "collect"),)
    return written(run, "speak", 0, 0, "frames", (), (use,), MOST, (0, "stop"), collected)


def looped(engine: Engine, runs: Sequence[str], temperature: float) -> dict[str, list[int]]:
    for one in [entry(run, heard(engine, run), temperature) for run in runs]:
        engine.add_loop(one)
    done: dict[str, LoopDone] = {}
    while not engine.idle:
        done |= {event.call.run: event for event in engine.step() if isinstance(event, LoopDone)}
    for run in runs:
        engine.drop(run)
    assert [done[run].error for run in runs] == [None] * len(runs)
    return {run: (done[run].outputs or {})["codes"].flatten().tolist() for run in runs}


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_device_loop_speaks_what_calls_speak_alone_and_together(engine: Engine, temperature: float) -> None:
    alone = {run: spoken(engine, [run], temperature)[run] for run in TEXTS}
    assert spoken(engine, [*TEXTS], temperature) == alone
    assert looped(engine, [*TEXTS], temperature) == alone
    assert looped(engine, ["bb"], temperature) == {"bb": alone["bb"]}


def test_it_speaks_as_defined(engine: Engine) -> None:
    texts = [ids_of(engine, text).tolist() for text in TEXTS.values()]
    model = speaker_of(context())
    assert [*spoken(engine, [*TEXTS], 0.0).values()] == [spoken_plainly(model, [text])[0] for text in texts]


def test_no_unit_goes_on_without_end(engine: Engine) -> None:
    for run, codes in spoken(engine, [*TEXTS], 0.0).items():
        units = len(ids_of(engine, TEXTS[run]))
        assert units <= len(codes) <= units * TINY.ages


def test_chunks_of_a_stream_sound_as_the_whole(engine: Engine) -> None:
    codes = torch.randint(0, 64, (50,), generator=torch.Generator().manual_seed(1))
    whole = outputs(engine, call("vocoder", {"codes": codes}, states=PAST, shift=2.0))[0]["waveform"]
    assert torch.equal(whole, codec_of(context()).decode(codes, Past.fresh(), 2.0)[0])
    policy, spec, parts = fixed.Policy(size=12, first=5), None, list[Tensor]()
    while (spec := policy.next(spec, len(codes), done=True)) is not None:
        one = call("vocoder", {"codes": codes[spec.start : spec.stop]}, run="s", states=PAST, shift=2.0)
        size = spec.stop - spec.start
        one.chunks["codes"] = ChunkInfo(spec.index, spec.start == 0, spec.stop == len(codes), size, 0, spec.start)
        parts += [outputs(engine, one)[0]["waveform"]]
    assert len(parts) > 3
    assert torch.equal(torch.cat(parts), whole)
    engine.drop("s")


@pytest.mark.parametrize(
    ("node", "inputs", "told"),
    [
        ("tokenizer", {"text": "..."}, "no words, letters or digits"),
        ("tokenizer", {"text": "a " * 1024}, "1025 words"),
        ("speaker", {"ids": torch.zeros(2, 2, dtype=torch.int64)}, "takes 1 to 1024 units"),
        ("speaker", {}, "takes units at `ids`"),
        ("vocoder", {"codes": torch.zeros(2, 2, dtype=torch.int64)}, "takes int64 codes"),
        ("vocoder", {"codes": torch.tensor([64])}, "codes from 0 to 63"),
    ],
)
def test_what_is_refused(engine: Engine, node: str, inputs: Mapping[str, Any], told: str) -> None:
    one = call(node, inputs, run="bad", states={"speaker": STATES, "vocoder": PAST}.get(node), **how(0.0), shift=0.0)
    [done] = serve(engine, one)
    assert told in str(done.error)
    engine.drop("bad")


def test_a_later_chunk_needs_those_before(engine: Engine) -> None:
    one = call("vocoder", {"codes": torch.zeros(2, dtype=torch.int64)}, run="late", states=PAST, shift=0.0)
    one.chunks["codes"] = ChunkInfo(1, first=False, last=True, valid=2, context=0, start=4)
    [done] = serve(engine, one)
    assert "give the state the scope of the run" in str(done.error)
