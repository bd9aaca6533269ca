"""The talker's operators on tiny random weights: that a device loop speaks what single calls speak, how an answer ends,
and what is refused."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.loop_calls import LoopInput, WrittenUse, body_of, rewritten, written
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import StateKey
from walkgraph.abi.operator import LoadContext
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.allocator import PAGE
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items as ItemsOut
from walkgraph.engine.loops.spec import LoopCall, LoopOutput, StreamItems
from walkgraph.errors import Refused
from walkgraph.models.qwen3_omni.talker import operators, weights
from walkgraph.models.qwen3_omni.talker.config import TALKER_TINY
from walkgraph.models.qwen3_omni.talker.model import Projection, Talker
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor
from walkgraph.models.qwen3_omni.talker.prompt import placed
from walkgraph.models.qwen3_omni.talker.tensors import predictor_tensors, projection_tensors, talker_tensors

SOURCE = "random:qwen3-omni-tiny:3"
STATES = {"kv": "spoken", "heard": "heard", "seen": "seen"}
NODES = {
    "talker": ("walkgraph.models.qwen3_omni.talker.operators:Talker", STATES),
    "others": ("walkgraph.models.qwen3_omni.talker.operators:CodePredictor", {}),
}
HOW: Mapping[str, Any] = {
    "temperature": 0.9,
    "top_k": 50,
    "top_p": 1.0,
    "repetition_penalty": 1.05,
    "frames_per_token": 0,
    "min_frames": 0,
}
TURN = torch.tensor([256, 259, 10, *b"hello", 257, 10])
EOS, CODES = TALKER_TINY.codec.eos, TALKER_TINY.predictor.vocab


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source=SOURCE, kv_bytes=1 << 21, family="qwen3_omni"))


def context() -> LoadContext:
    cpu = torch.device("cpu")
    return LoadContext(
        device=cpu, dtype=torch.float32, folder=None, shared={}, options={}, random=("qwen3-omni-tiny", 3)
    )


def seeds(run: str) -> tuple[int, int]:
    return 101 + 7 * sum(run.encode()), 55 + 3 * sum(run.encode())


def others(how: Mapping[str, Any]) -> dict[str, Any]:
    """The further codes are drawn if the first ones are."""
    return {"temperature": float(how.get("temperature", 1.0) > 0), "top_k": 50, "top_p": 0.8}


def listened(engine: Engine, run: str, ids: Tensor = TURN, **how: Any) -> Tensor:
    """Read a turn; gives what takes the place of a last frame."""
    asked = {**HOW, "speaker": "Ethan", **how}
    return outputs(engine, call("talker", {"ids": ids}, run=run, states=STATES, **asked))[0]["begin"]


def spoken(
    engine: Engine, runs: Sequence[str], words: Sequence[int], frames: int, **how: Any
) -> dict[str, list[dict[str, Any]]]:
    """Call by call, those of all runs in one batch; a run ends with the frame that stops it."""
    last = {run: listened(engine, run) for run in runs}
    made: dict[str, list[dict[str, Any]]] = {run: [] for run in runs}
    for at in range(frames):
        text = {"text": torch.tensor(words[at : at + 1])} if at < len(words) else {}
        here = [run for run in runs if not (made[run] and made[run][-1]["stop"])]
        calls = [
            call(
                "talker",
                {"frame": last[run], **text},
                run=run,
                states=STATES,
                iteration=(at,),
                draws=seeds(run)[0],
                **{**HOW, **how},
            )
            for run in here
        ]
        said = outputs(engine, *calls)
        asked = [
            call("others", {"code": one["code"], "hidden": one["hidden"]}, run=run, iteration=(at,), **others(how))
            for run, one in zip(here, said, strict=True)
        ]
        for run, one in zip(here, asked, strict=True):
            one.seed = seeds(run)[1]
        for run, one, further in zip(here, said, outputs(engine, *asked) if asked else [], strict=True):
            last[run] = further["embedding"]
            made[run].append({**one, **further})
    for run in runs:
        engine.drop(run)
    return made


def entry(run: str, begin: Tensor, words: Sequence[int], frames: int, **how: Any) -> LoopCall:
    """The same frames as one device loop."""
    text = torch.full((frames, 1), -1)
    text[: len(words), 0] = torch.tensor(words[:frames])
    states = {slot: StateKey(run, state) for slot, state in STATES.items()}
    talker = WrittenUse(
        "talker",
        (LoopInput("frame", "value", begin, carried=(1, "embedding")), LoopInput("text", "each", text)),
        {**HOW, **how},
        {},
        states,
        seeds(run)[0],
    )
    further = WrittenUse(
        "others",
        (LoopInput("code", "use", use=0, output="code"), LoopInput("hidden", "use", use=0, output="hidden")),
        others(how),
        {},
        {},
        seeds(run)[1],
    )
    outputs = (LoopOutput("codes", 1, "codes", "collect"), LoopOutput("derailed", 0, "derailed", "last"))
    return written(run, "speak", 0, 0, "frames", (), (talker, further), frames, (0, "stop"), outputs)


def looped(engine: Engine, calls: Sequence[LoopCall]) -> dict[str, LoopDone]:
    for one in calls:
        engine.add_loop(one)
    done: dict[str, LoopDone] = {}
    while not engine.idle:
        done |= {event.call.run: event for event in engine.step() if isinstance(event, LoopDone)}
    for one in calls:
        engine.drop(one.run)
    assert [done[one.run].error for one in calls] == [None] * len(calls)
    return done


WORDS = tuple(b"spoken")
RUNS = ("a", "bb", "ccc")


def codes_of(made: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    return torch.cat([one["codes"] for one in made]).tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_device_loop_speaks_what_calls_speak_alone_and_together(engine: Engine, temperature: float) -> None:
    how = {"temperature": temperature}
    alone = {run: spoken(engine, [run], WORDS, 9, **how)[run] for run in RUNS}
    together = spoken(engine, RUNS, WORDS, 9, **how)
    calls = [entry(run, listened(engine, run), WORDS, 9, **how) for run in RUNS]
    done = looped(engine, calls)
    for run in RUNS:
        wanted = codes_of(alone[run])
        assert len(wanted) == 9
        assert codes_of(together[run]) == wanted
        assert (done[run].outputs or {})["codes"].flatten(0, 1).tolist() == wanted
    assert len({str(codes_of(alone[run])) for run in RUNS}) == (3 if temperature else 1), "seeds count"


def test_a_frame_is_the_sum_of_its_codes_embeddings(engine: Engine) -> None:
    [frame, *_] = spoken(engine, ["a"], WORDS, 1)["a"]
    here = context()
    predictor, first = weights.predictor_of(here), weights.first_codes_of(here)
    codes = frame["codes"][0].tolist()
    tables = [first, *(embedding.weight for embedding in predictor.model.codec_embedding)]
    wanted = sum(table[code] for table, code in zip(tables, codes, strict=True))
    torch.testing.assert_close(frame["embedding"][0], wanted, atol=1e-5, rtol=0)
    assert frame["code"].tolist() == codes[:1]


class Naive:
    """The predictor as its definition has it: all positions so far in every pass."""

    def __init__(self, network: CodePredictor) -> None:
        self._network = network

    def logits(self, rows: Tensor) -> Tensor:
        """rows `[n, W]` -> logits of the code that follows them."""
        from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask

        stack, count = self._network.model, len(rows)
        parts, attend = {"": rows}, PackedAttend((count,), mask=causal_mask(count))
        for number, layer in enumerate(stack.layers):
            parts = layer(number, parts, stack.rope(torch.arange(count)), attend)  # type: ignore[operator]
        return self._network.lm_head[count - 2](stack.norm(parts[""][-1]))


@torch.inference_mode()
def test_passes_with_a_cache_are_passes_without() -> None:
    here = context()
    network, first = weights.predictor_of(here), weights.first_codes_of(here)
    generator = torch.Generator().manual_seed(4)
    hidden = torch.randn(3, TALKER_TINY.stack.width, generator=generator)
    code = torch.tensor([5, 9, 5])
    kept_logits: list[Tensor] = []

    def choose(index: int, logits: Tensor) -> Tensor:
        kept_logits.append(logits)
        return logits.argmax(-1)

    frames = network.frames(hidden, first[code], code, choose)
    naive = Naive(network)
    for row in range(3):
        rows = [hidden[row], first[code[row]]]
        for index in range(TALKER_TINY.groups - 1):
            wanted = naive.logits(torch.stack(rows))
            torch.testing.assert_close(kept_logits[index][row], wanted, atol=1e-5, rtol=0)
            rows.append(network.model.codec_embedding[index].weight[wanted.argmax()])  # type: ignore[index]
            assert frames.codes[row, index + 1] == wanted.argmax()


class Trickle:
    """Gives the loops of runs their words in pieces of any size, before a slot is free, and while a run is held."""

    def __init__(self, engine: Engine, seed: int, frames: int) -> None:
        self.engine, self.frames, self.dice = engine, frames, random.Random(seed)
        self.given = dict.fromkeys(RUNS, 0)
        self.reached = dict.fromkeys(RUNS, 0)
        self.held: set[str] = set()
        self.done: dict[str, LoopDone] = {}

    def step(self, run: str) -> None:
        for event in self.engine.step():
            if isinstance(event, LoopDone):
                self.done[event.call.run] = event
            elif isinstance(event, ItemsOut):
                self.reached[event.call.run] = event.first + event.count

    def hold(self, run: str) -> None:
        if run not in self.done:
            self.engine.holds.hold_loops(run)
            self.held.add(run)

    def release(self, run: str) -> None:
        if run in self.held:
            self.engine.holds.release_loops(run)
            self.held.remove(run)

    def give(self, run: str) -> None:
        first, count = self.given[run], self.dice.randint(1, 3)
        words = WORDS[first : first + count]
        self.given[run] += len(words)
        items = [StreamItems((0, "text"), first, torch.tensor(words))] if words else []
        self.engine.loops.allow(run, 0, 0, (), self.given[run] if words else self.frames, items)

    def run(self) -> None:
        while len(self.done) < len(RUNS):
            act = self.dice.choice([self.step, self.step, self.hold, self.release, self.give])
            act(self.dice.choice(RUNS))
            for run, count in self.reached.items():
                assert count <= self.given[run] or self.given[run] == len(WORDS), "a loop waits for its words"


def with_items(call: LoopCall) -> LoopCall:
    """The same loop, whose words come from a stream."""
    talker, *rest = body_of(call)
    ports = tuple(LoopInput("text", "item") if one.port == "text" else one for one in talker.inputs)
    outputs = (*call.spec.outputs, LoopOutput("each", 1, "codes", "each"))
    return rewritten(call, body=(replace(talker, inputs=ports), *rest), outputs=outputs, grain=1, allowed=0)


@pytest.mark.parametrize("seed", range(4))
def test_words_that_come_one_by_one_are_spoken_as_if_they_had_all_been_there(engine: Engine, seed: int) -> None:
    trickle = Trickle(engine, seed, frames=12)
    wanted = {run: codes_of(spoken(engine, [run], WORDS, 12)[run]) for run in RUNS}
    for run in RUNS:
        engine.add_loop(with_items(entry(run, listened(engine, run), WORDS, 12)))
    trickle.run()
    for run in RUNS:
        assert trickle.done[run].error is None
        assert (trickle.done[run].outputs or {})["codes"].flatten(0, 1).tolist() == wanted[run]
        trickle.release(run)
        engine.drop(run)


# ── the end ──


def test_the_guard_ends_speech_that_goes_on_without_words(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_AFTER", 2)
    made = spoken(engine, ["a"], WORDS[:3], 30, frames_per_token=2)["a"]
    assert [bool(one["stop"]) for one in made] == [False] * 8 + [True], "two frames for each of three words, and two"
    assert bool(made[-1]["derailed"])
    assert not any(bool(one["derailed"]) for one in made[:-1])
    done = looped(engine, [entry("a", listened(engine, "a"), WORDS[:3], 30, frames_per_token=2)])["a"]
    assert (done.iterations, done.stopped) == (9, True)
    assert (done.outputs or {})["derailed"].item() is True
    assert len(spoken(engine, ["a"], WORDS[:3], 12, frames_per_token=0)["a"]) == 12


def test_the_guard_leaves_words_that_are_still_coming_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_AFTER", 0)
    made = spoken(engine, ["a"], [*WORDS, *WORDS], 12, frames_per_token=1)["a"]
    assert not any(bool(one["stop"]) for one in made)


def test_an_answer_without_words_has_no_sound(engine: Engine) -> None:
    made = spoken(engine, ["a"], (), 3)["a"]
    assert [bool(one["stop"]) for one in made] == [True]
    assert not bool(made[0]["derailed"])
    done = looped(engine, [entry("a", listened(engine, "a"), (), 3)])["a"]
    assert (done.iterations, done.stopped) == (1, True)


def test_speech_has_its_fewest_frames(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def ending(logits: Tensor, *rest: Any) -> Tensor:
        """The code that ends speech, wherever it isn't barred."""
        end = EOS % logits.shape[1]
        return torch.where(logits[:, end].isinf(), logits.argmax(1), end)

    monkeypatch.setattr(operators, "sample", ending)
    made = spoken(engine, ["a"], WORDS[:3], 12, min_frames=7)["a"]
    assert [bool(one["stop"]) for one in made] == [*[False] * 7, True]
    done = looped(engine, [entry("a", listened(engine, "a"), WORDS[:3], 12, min_frames=7)])["a"]
    assert (done.outputs or {})["codes"].flatten(0, 1).tolist() == codes_of(made)


def test_the_code_that_ends_speech_stops_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "sample", lambda logits, *rest: torch.full((len(logits),), EOS % logits.shape[1]))
    made = spoken(engine, ["a"], WORDS, 3)["a"]
    assert [bool(one["stop"]) for one in made] == [True]


def test_words_then_the_end_then_padding_are_heard(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rows that the talker's layers get, without the frames."""
    rows: list[Tensor] = []
    talker = operators.Talker.load(context())
    heard = torch.tensor([[0.0, 0.0, 1.5, 0.0]])
    for word in (*WORDS[:2], -1, -1, -1):
        rows.append(talker._said(torch.tensor([word]), torch.zeros_like(talker._begin), heard, torch.tensor([0])))
    said = TALKER_TINY.spoken
    wanted = talker._words[torch.tensor([*WORDS[:2], said.eos, said.pad, said.pad])]
    assert torch.equal(torch.cat(rows), wanted)
    assert heard.tolist() == [[2, 1, 1.5, 1.5]]


# ── the prompt ──


def test_turns_of_pieces_follow_each_other() -> None:
    picture = [(0, 0, 0), (1, 1, 1), (1, 1, 2), (1, 2, 1), (1, 2, 2), (3, 3, 3)]
    text = [(n, n, n) for n in range(3)]
    place = placed(torch.tensor([*text, *picture, *text], dtype=torch.float32), 2)
    wanted = [*text, *((t + 3, y + 3, x + 3) for t, y, x in picture), *((n + 7,) * 3 for n in range(5))]
    assert place.positions.tolist() == [[float(n) for n in row] for row in wanted]
    assert place.next == 12


def test_fractions_of_a_video_keep_all_distances() -> None:
    video = [(0, 0, 0), (1, 1, 1), (9.75, 1, 1), (10.75, 10.75, 10.75)]
    place = placed(torch.tensor([*video, (0, 0, 0)], dtype=torch.float32), 1)
    assert place.positions[:, 0].tolist() == [0, 1, 9.75, 10.75, 11.75, 12.75]
    assert (place.next, place.ahead) == (13.75, 0)


def test_frames_after_the_first_follow_the_largest_position() -> None:
    """A film whose sound ends with its cells above it: the text behind goes on from the sound."""
    film = [(0, 0, 0), (1, 1, 1), (2, 2, 2), (2, 30, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5)]
    place = placed(torch.tensor(film, dtype=torch.float32), 2)
    assert place.positions[-2:, 0].tolist() == [6, 7]
    assert (place.next, place.ahead) == (8, 30 - 8)


PICTURE = torch.tensor([256, 259, 10, 264, *[266] * 4, 265, *b"so", 257, 10])
PLACED = torch.tensor(
    [*((n,) * 3 for n in range(4)), (4, 4, 5), (4, 5, 4), (4, 5, 5), *((n,) * 3 for n in range(6, 12))]
)


@pytest.mark.parametrize("turn", ["text", "picture"])
@pytest.mark.parametrize("most", [1, 4, 100])
def test_a_prompt_read_in_parts_is_the_prompt(engine: Engine, turn: str, most: int) -> None:
    given: dict[str, Any] = {"ids": TURN}
    if turn == "picture":
        media = torch.randn(4, TALKER_TINY.stack.width, generator=torch.Generator().manual_seed(1))
        given = {"ids": PICTURE, "positions": PLACED.float(), "media": media}
    asked = {**HOW, "speaker": "aiden"}
    whole = call("talker", given, run="whole", states=STATES, **asked)
    outputs(engine, whole)
    talker = operators.Talker.load(context())
    parts = talker.split(call("talker", given, run="parts", states=STATES, **asked), most)
    assert sum(map(talker.rows, parts)) == talker.rows(whole) == len(given["ids"]) + 8
    assert max(map(talker.rows, parts)) <= most
    for one in parts:
        [made] = outputs(engine, one)
    assert made["begin"].shape == (1, TALKER_TINY.stack.width)
    wanted, got = (engine.transfers.export(StateKey(run, "spoken")) for run in ("whole", "parts"))
    assert torch.equal(got["counters"], wanted["counters"])
    torch.testing.assert_close(got["kv.0"], wanted["kv.0"], atol=1e-5, rtol=0)
    for run in ("whole", "parts"):
        engine.drop(run)


def test_turns_that_were_read_before_are_not_read_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    keep = Talker.keep

    def counted(self: Talker, x: Tensor, *rest: Any) -> None:
        kept.append(len(x))
        keep(self, x, *rest)

    monkeypatch.setattr(Talker, "keep", counted)
    turn = torch.tensor([256, 259, 10, *b"the first turn of two", 257, 10])
    both = torch.cat([turn, torch.tensor([256, 259, 10, *b"and the second", 257, 10])])
    for run, ids in (("one", turn), ("again", turn), ("two", both), ("other", turn)):
        listened(engine, run, ids, speaker="chelsie" if run == "other" else "ethan")
        engine.drop(run)
    assert kept[0] == len(turn) + 8
    assert len(kept) == 3, "nothing is left to read of the same turn"
    assert kept[1] <= len(both) + 8 - PAGE, "the first turn's whole pages are there"
    assert kept[2] <= 8, "the voice differs"


@pytest.mark.parametrize("speaker", ["Nobody", "", "eth an"])
def test_an_unknown_speaker_is_the_clients_fault(engine: Engine, speaker: str) -> None:
    [done] = serve(engine, call("talker", {"ids": TURN}, run="a", states=STATES, **{**HOW, "speaker": speaker}))
    assert done.error is not None
    assert done.error.code == "invalid_input"
    assert "choose one of aiden, chelsie, ethan" in done.error.message


def test_speakers_are_known_in_any_case_and_differ(engine: Engine) -> None:
    told = {}
    for speaker in ("ethan", "ETHAN", "Chelsie"):
        listened(engine, speaker, speaker=speaker)
        state = engine.transfers.export(StateKey(speaker, "spoken"))
        told[speaker] = state["kv.0"]
        engine.drop(speaker)
    assert torch.equal(told["ethan"], told["ETHAN"])
    assert not torch.equal(told["ethan"], told["Chelsie"])


def test_weights_without_a_talker_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from walkgraph.models.qwen3_omni.config import OmniConfig
    from walkgraph.models.qwen3_omni.presets import omni_config

    silent = OmniConfig(thinker=omni_config("qwen3-omni-tiny").thinker)
    context = LoadContext(
        device=torch.device("cpu"), dtype=torch.float32, folder=None, shared={OmniConfig: silent}, options={}
    )
    with pytest.raises(Refused, match="have no talker"):
        operators.Talker.load(context)


def test_tensors_are_known_without_torch() -> None:
    with torch.device("meta"):
        modules = {
            talker_tensors: Talker(TALKER_TINY),
            projection_tensors: Projection(TALKER_TINY),
            predictor_tensors: CodePredictor(TALKER_TINY.predictor, TALKER_TINY.groups),
        }
    for tensors, module in modules.items():
        assert dict(tensors(TALKER_TINY)) == {name: tuple(one.shape) for name, one in module.state_dict().items()}
