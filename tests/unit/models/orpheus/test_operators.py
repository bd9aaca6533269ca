"""Orpheus's operators on a tiny random model: the prompt, and that `step` speaks what `forward` speaks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, ids, outputs, plan_of, serve
from walkgraph.abi.calls import Call, StateKey
from walkgraph.abi.operator import LoadContext
from walkgraph.abi.step import PagedRows, PagedSlot, StepBatch
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language import backbone as language_backbone
from walkgraph.components import catalogue
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.sampling import sample
from walkgraph.models.orpheus.operators import Backbone
from walkgraph.models.orpheus.presets import ORPHEUS
from walkgraph.starters.shapes.tokens import FILE

CPU = torch.device("cpu")
CONFIG = ORPHEUS["orpheus-tiny"]
T = CONFIG.tokens
SOURCE = "random:orpheus-tiny:3"
NODES = {
    "llm": ("walkgraph.models.orpheus.operators:Backbone", {"kv": "main", "seen": "seen"}),
    "prompt": ("walkgraph.models.orpheus.operators:Prompt", {}),
}
STATES = {"kv": "main", "seen": "seen"}
GREEDY = {
    "temperature": 0.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
SAMPLED: dict[str, Any] = {**GREEDY, "temperature": 1.3, "top_p": 0.97}
PENALISED: dict[str, Any] = {**SAMPLED, "repetition_penalty": 1.7, "presence_penalty": 0.4, "frequency_penalty": 0.3}
NARROW: dict[str, Any] = {**PENALISED, "temperature": 0.0, "top_k": 9, "min_p": 0.02}
HOWS = [GREEDY, SAMPLED, PENALISED, NARROW]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source=SOURCE))


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return Backbone.load(
        LoadContext(device=CPU, dtype=torch.float32, folder=None, shared={}, options={}, random=("orpheus-tiny", 3))
    )


def llm(port: str, value: Tensor, run: str, how: Mapping[str, Any], at: int = 0) -> Call:
    seed = 17 + 1000 * sum(run.encode())
    return call("llm", {port: value}, run=run, states=STATES, iteration=(at,), draws=seed, **how)


def prompt_of(run: str) -> Tensor:
    return torch.randint(0, 256, (3 + len(run),), generator=torch.Generator().manual_seed(sum(run.encode())))


def spoken(engine: Engine, run: str, how: Mapping[str, Any], steps: int) -> list[dict[str, Any]]:
    """By `forward`: what the prompt gives, and what every token gives."""
    said = outputs(engine, llm("ids", prompt_of(run), run, how))
    for at in range(steps):
        said += outputs(engine, llm("token", said[-1]["token"], run, how, at))
    return said


class Stepped:
    """The tables that the engine holds for resident runs, filled by `forward`'s states."""

    def __init__(
        self, engine: Engine, backbone: Backbone, runs: Sequence[str], hows: Sequence[Mapping[str, Any]]
    ) -> None:
        self.backbone, self.runs, self.hows = backbone, runs, hows
        self.pool = Pool(backbone.caches()["kv"], 4 * (len(runs) + 1), CPU)
        count = len(runs) + 1
        # The rows lie in the table in another order than in the batch; the last one pads.
        self.rows = torch.tensor([*reversed(range(len(runs))), count - 1], dtype=torch.int32)
        self.pages = torch.arange(1, 4 * count + 1, dtype=torch.int32).view(count, 4)
        self.lengths = torch.zeros(count, dtype=torch.int32)
        self.seen = torch.zeros(count, CONFIG.llm.vocab, dtype=torch.int16)
        for run, row in zip(runs, self.rows.tolist(), strict=False):
            state = engine.transfers.export(StateKey(run, "main"))
            self.lengths[row] = int(state["counters"][0, 0])
            self.pool.write(self.pages[row].tolist(), state["kv.0"])
            self.seen[row] = engine.transfers.export(StateKey(run, "seen"))["tensor"]

    def step(self, token: Tensor, at: int) -> dict[str, Tensor]:
        hows = [*self.hows, GREEDY]
        whole = ("top_k",)
        batch = StepBatch(
            rows=self.rows,
            inputs={"token": token},
            params={
                name: torch.tensor([how[name] for how in hows], dtype=torch.int64 if name in whole else torch.float32)
                for name in GREEDY
            },
            seed=torch.tensor([llm("ids", ids(0), run, GREEDY).seed for run in self.runs] + [0]),
            iteration=torch.full((len(self.rows),), at),
            paged={
                "kv": PagedSlot(
                    self.pool.k, self.pool.v, PagedRows(self.rows, self.pages, self.lengths, self.lengths.clone())
                )
            },
            tensors={"seen": self.seen},
        )
        with torch.inference_mode():
            given = self.backbone.step(batch)
        self.lengths[self.rows[:-1].long()] += 1
        assert given.finite is not None
        assert given.finite.tolist() == [True] * len(self.rows)
        return dict(given.ports)


def test_a_run_speaks_the_same_by_step_as_by_forward(engine: Engine, backbone: Backbone) -> None:
    runs, steps = [f"run{'x' * i}" for i in range(len(HOWS))], 40
    wanted = [spoken(engine, run, how, steps) for run, how in zip(runs, HOWS, strict=True)]
    for run in runs:
        engine.drop(run)
    first = [outputs(engine, llm("ids", prompt_of(run), run, how))[0] for run, how in zip(runs, HOWS, strict=True)]
    stepped = Stepped(engine, backbone, runs, HOWS)
    token = torch.stack([*(one["token"] for one in first), ids(0)])
    for at in range(steps):
        ports = stepped.step(token, at)
        for row, said in enumerate(wanted):
            for port in ("token", "code", "stop"):
                assert ports[port][row].tolist() == said[at + 1][port].tolist(), (row, at, port)
        token = ports["token"]
    spoken_tokens = [[int(one["token"]) for one in said] for said in wanted]
    assert len({tuple(tokens) for tokens in spoken_tokens}) == len(HOWS)
    for run, row in zip(runs, stepped.rows.tolist(), strict=False):
        engine_seen = engine.transfers.export(StateKey(run, "seen"))["tensor"]
        assert not torch.equal(stepped.seen[row], engine_seen)
        engine.drop(run)


def test_what_is_counted_is_the_prompt_once_and_every_spoken_token(engine: Engine) -> None:
    said = spoken(engine, "counted", PENALISED, 12)
    seen = engine.transfers.export(StateKey("counted", "seen"))["tensor"]
    wanted = torch.zeros(CONFIG.llm.vocab, dtype=torch.int16)
    wanted[prompt_of("counted")] = 1
    for one in said[:-1]:
        wanted[one["token"]] += 2
    assert torch.equal(seen, wanted)
    engine.drop("counted")


def tensors(engine: Engine, key: StateKey) -> dict[str, Tensor]:
    """The tensors of a state, without the names of its tokens."""
    return {name: value for name, value in engine.transfers.export(key).items() if isinstance(value, Tensor)}


def test_a_prompt_may_be_read_in_parts_and_calls_may_share_a_forward(engine: Engine) -> None:
    long = torch.randint(0, 256, (37,), generator=torch.Generator().manual_seed(0))
    small = engine_of(plan_of(NODES, source=SOURCE, budget={"llm": 8}))
    whole, parts = (outputs(e, llm("ids", long, "p", PENALISED))[0] for e in (engine, small))
    assert whole["token"].tolist() == parts["token"].tolist()
    for state in ("main", "seen"):
        a, b = (tensors(e, StateKey("p", state)) for e in (engine, small))
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    alone = [spoken(engine, run, how, 1) for run, how in (("q", SAMPLED), ("r", NARROW))]
    for run in "qr":
        engine.drop(run)
    outputs(engine, llm("ids", prompt_of("q"), "q", SAMPLED))
    mixed = outputs(engine, llm("token", alone[0][0]["token"], "q", SAMPLED), llm("ids", prompt_of("r"), "r", NARROW))
    assert mixed[0]["token"].tolist() == alone[0][1]["token"].tolist()
    assert mixed[1]["token"].tolist() == alone[1][0]["token"].tolist()
    for run in "pqr":
        engine.drop(run)


def test_what_prompts_have_in_common_is_read_once_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits: list[Tensor] = []

    def watched(given: Tensor, *rest: Any) -> Tensor:
        logits.append(given)
        return sample(given, *rest)

    monkeypatch.setattr(language_backbone, "sample", watched)
    first = torch.randint(0, 256, (70,), generator=torch.Generator().manual_seed(1))
    other = torch.cat([first[:40], first[:9]])
    prompts = {"first": [first], "again": [first], "other": [other, first[:3]]}
    told: list[list[Any]] = []
    for cached in (True, False):
        made = engine_of(plan_of(NODES, source=SOURCE), prefix_cache=cached)
        logits.clear()
        for run, parts in prompts.items():
            for part in parts:
                outputs(made, llm("ids", part, run, PENALISED))
            outputs(made, llm("token", ids(7), run, PENALISED), llm("ids", first[:50], f"{run} too", NARROW))
        keys = [
            StateKey(f"{run}{also}", state) for run in prompts for also in ("", " too") for state in ("main", "seen")
        ]
        told.append([[*logits], *(tensors(made, key) for key in keys)])
        free, total = made.pools.pages()
        if cached:
            # Two pages of `other`, four of `first` again, and three of each of the fifties.
            assert (made.pools.prefix_stats().saved, made.pools.prefix_stats().hits) == (16 * (2 + 4 + 3 * 3), 5)
            shared = total - free
        else:
            assert total - free == shared + 2 + 4 + 3 * 3
        made.states.audit()
    torch.testing.assert_close(told[0], told[1], rtol=1e-5, atol=1e-5)


def test_a_prompt_of_unknown_tokens_is_nobody_elses() -> None:
    made = engine_of(plan_of(NODES, source=SOURCE))
    prompt = torch.tensor([*range(17), 9999, *range(30)])
    for run in ("a", "b"):
        [done] = serve(made, llm("ids", prompt, run, GREEDY))
        assert done.error is not None
    assert made.pools.prefix_stats().hits == 0


def test_codes_and_the_stop_follow_from_the_token(backbone: Backbone) -> None:
    tokens = torch.tensor([T.audio_base, T.audio_base + 64 * 3 + 5, T.audio_base - 1, 0, T.end_of_speech, -1])
    answers = backbone.answers(tokens, torch.full_like(tokens, -1))
    codes = [0, 5, 63, (-T.audio_base) % 64, (T.end_of_speech - T.audio_base) % 64, (-T.audio_base) % 64]
    assert answers["code"][:, 0].tolist() == codes
    assert answers["stop"].tolist() == [False, False, False, False, True, False]
    assert answers["token"][:, 0].tolist() == [*tokens[:-1].tolist(), 0]
    assert answers["@finite"].tolist() == [True] * 5 + [False]


def test_a_token_that_is_none_ends_its_run_alone(engine: Engine) -> None:
    good, bad = llm("ids", ids(1, 2), "good", GREEDY), llm("ids", ids(1, 9999), "bad", GREEDY)
    [fine, failed] = serve(engine, good, bad)
    assert fine.error is None
    assert failed.error is not None
    assert failed.error.code == "numeric_error"
    for value in (ids(), torch.zeros(1, 1, dtype=torch.int64)):
        [done] = serve(engine, llm("ids", value, "empty", GREEDY))
        assert done.error is not None
    [done] = serve(engine, llm("token", ids(1, 2), "two", GREEDY))
    assert done.error is not None


def test_numbers_that_are_none_are_told_by_the_step(engine: Engine, backbone: Backbone) -> None:
    outputs(engine, llm("ids", prompt_of("nan"), "nan", GREEDY))
    stepped = Stepped(engine, backbone, ["nan"], [GREEDY])
    stepped.pool.v[0][stepped.pages[0, 0].long() * 16] = float("nan")
    with pytest.raises(AssertionError):
        stepped.step(torch.tensor([[1], [0]]), 0)


def test_only_a_single_token_steps(backbone: Backbone) -> None:
    assert backbone.step_spec({"ids": ids(1)}, GREEDY) is None
    spec = backbone.step_spec({"token": ids(1)}, GREEDY)
    assert spec is not None
    assert spec.tensors["seen"].shape == (CONFIG.llm.vocab,)
    component = catalogue()["orpheus.backbone"]
    assert component.resident
    assert set(spec.inputs) | {"ids"} == {one.name for one in component.inputs}
    assert set(spec.outputs) == {one.name for one in component.outputs}
    assert set(spec.appends) | set(spec.tensors) == {one.slot for one in component.states}
    assert set(component.params) - set(Backbone.options) == set(GREEDY)


def test_a_prompt_of_bytes_lies_between_the_special_tokens(engine: Engine) -> None:
    def read(text: Any, **params: Any) -> list[int]:
        given = call("prompt", {"text": text}, **{"voice": "leo", "begin": False, **params})
        return outputs(engine, given)[0]["ids"].tolist()

    ends = [T.eos, T.end_of_human, T.start_of_ai, T.start_of_speech]
    assert read("hi é") == [T.start_of_human, T.bos, *"leo: hi é".encode(), *ends]
    assert read("", voice="zoe", begin=True) == [T.bos, T.start_of_human, T.bos, *b"zoe: ", *ends]
    assert read("\ud800") == [T.start_of_human, T.bos, *b"leo: ?", *ends]
    [done] = serve(engine, call("prompt", {"text": 5}, voice="leo", begin=False))
    assert done.error is not None
    assert done.error.code == "invalid_input"


def test_the_published_ids_are_those_of_the_model_card() -> None:
    t = ORPHEUS["orpheus-3b"].tokens
    assert (t.bos, t.start_of_human, t.eos, t.end_of_human) == (128000, 128259, 128009, 128260)
    assert (t.start_of_ai, t.start_of_speech, t.end_of_speech) == (128261, 128257, 128258)
    assert (t.audio_base, t.codebook, t.vocab) == (128266, 4096, 156938)


def test_names_of_added_tokens_in_a_text_stay_text(tmp_path: Path) -> None:
    """The shapes tokenizer with one more token, that is not special: as the codes are in the published file."""
    folder = tmp_path / "speech"
    folder.mkdir()
    document = json.loads(FILE.read_text("utf-8"))
    token = {**document["added_tokens"][0], "id": 500, "content": "<custom_token_7>", "special": False}
    document["added_tokens"].append(token)
    (folder / "tokenizer.json").write_text(json.dumps(document), "utf-8")
    public = {
        "model_type": "llama",
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_hidden_layers": 1,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "vocab_size": 711,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
        "speech_tokens": {**vars_of(T)},
    }
    (folder / "config.json").write_text(json.dumps(public), "utf-8")
    (folder / "model.safetensors").touch()
    trained = engine_of(plan_of({"prompt": NODES["prompt"]}, source="checkpoint:speech"), weights_roots=[tmp_path])
    names = f"<custom_token_7> {document['added_tokens'][0]['content']}"
    [given] = outputs(trained, call("prompt", {"text": names}, voice="leo", begin=False))
    inner = given["ids"].tolist()[2:-4]
    assert 500 not in inner
    assert document["added_tokens"][0]["id"] not in inner
    assert len(inner) > 4


def vars_of(tokens: Any) -> dict[str, int]:
    return {name: getattr(tokens, name) for name in tokens.__dataclass_fields__}


def test_weights_are_drawn_by_name_and_packed_once(backbone: Backbone) -> None:
    from walkgraph.architectures.language.model import LanguageModel

    plain = drawn(lambda: LanguageModel(CONFIG.llm), 3, device=CPU, dtype=torch.float32)
    packed = backbone._model.state_dict()  # type: ignore[attr-defined]
    assert packed.keys() == plain.state_dict().keys()
    for name, tensor in plain.state_dict().items():
        assert torch.equal(packed[name], tensor)
