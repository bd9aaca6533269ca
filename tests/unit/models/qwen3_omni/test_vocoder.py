"""The vocoder's operator: a stream's sound is the same however it is cut, batched and repeated."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.golden.qwen3_omni.vocoder import section
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call, ChunkInfo
from walkgraph.abi.operator import LoadContext
from walkgraph.abi.step import StepBatch
from walkgraph.checkpoints.fields import Fields
from walkgraph.chunking import fixed, left_context
from walkgraph.chunking.base import Policy
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.calls.runner import Runner
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools
from walkgraph.engine.kv.states import StateTable
from walkgraph.errors import InvalidInput, Refused
from walkgraph.layers.sound.causal_conv import packed
from walkgraph.layers.unset import unset
from walkgraph.models.qwen3_omni.presets import OMNI
from walkgraph.models.qwen3_omni.vocoder.components import NUMBERS
from walkgraph.models.qwen3_omni.vocoder.config import PUBLISHED, TINY, VocoderConfig
from walkgraph.models.qwen3_omni.vocoder.model import Code2Wav
from walkgraph.models.qwen3_omni.vocoder.operators import Code2wav
from walkgraph.models.qwen3_omni.vocoder.weights import random_vocoder

torch.set_num_threads(1)
CPU = torch.device("cpu")
CLOSE = {"rtol": 0.0, "atol": 1e-5}
STATES = {"window": "window", "tails": "tails"}
BUNDLED = fixed.Policy(size=10, first=5)
NODES = {"voc": ("walkgraph.models.qwen3_omni.vocoder.operators:Code2wav", STATES)}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:qwen3-omni-tiny:4"))


@pytest.fixture(scope="module")
def model() -> Code2Wav:
    return random_vocoder(TINY, 4, device=CPU, dtype=torch.float32)


@pytest.fixture(autouse=True)
def _emptied(engine: Engine) -> Iterator[None]:
    yield
    engine.drop("r")


def stream(frames: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 64, (frames, 16), generator=torch.Generator().manual_seed(1000 * seed + frames))


def chunk(codes: Tensor, start: int, stop: int, run: str = "r", context: int = 0) -> Call:
    """The frames `[start, stop)` of a stream, of which the first `context` came before."""
    one = call("voc", {"codes": codes[start:stop]}, run=run, states=STATES, iteration=(stop,))
    last = stop == len(codes)
    one.chunks["codes"] = ChunkInfo(stop, start + context == 0, last, stop - start, context, start)
    return one


def chunks(codes: Tensor, policy: Policy, run: str = "r") -> list[Call]:
    made: list[Call] = []
    spec = None
    while (spec := policy.next(spec, len(codes), done=True)) is not None:
        made.append(chunk(codes, spec.start, spec.stop, run, spec.context))
    return made


def heard(engine: Engine, calls: Sequence[Call]) -> Tensor:
    """One call after the other."""
    return torch.cat([outputs(engine, one)[0]["waveform"] for one in calls])


def whole(model: Code2Wav, codes: Tensor) -> Tensor:
    """All frames at once, without the engine: the plain form."""
    with torch.inference_mode():
        return model.step(codes[None], torch.zeros(1, dtype=torch.int64), model.fresh(1), first=True)[0][0]


@pytest.mark.parametrize("seed", range(6))
def test_streams_cut_anywhere_in_batches_of_any_company_sound_as_when_decoded_whole(
    engine: Engine, model: Code2Wav, seed: int
) -> None:
    dice = random.Random(seed)
    runs = {f"{seed}.{n}": stream(dice.randint(1, 30), seed=10 * seed + n) for n in range(4)}
    taken, parts = dict.fromkeys(runs, 0), {run: list[Tensor]() for run in runs}
    while any(taken[run] < len(codes) for run, codes in runs.items()):
        size = dice.randint(1, 8)
        calls: list[Call] = []
        for run, codes in runs.items():
            if taken[run] < len(codes) and dice.random() < 0.7:
                start, taken[run] = taken[run], min(len(codes), taken[run] + size)
                calls.append(chunk(codes, start, taken[run], run))
        for one, made in zip(calls, outputs(engine, *calls), strict=True):
            parts[one.run].append(made["waveform"])
    for run, codes in runs.items():
        sound = torch.cat(parts[run])
        assert sound.shape == (1920 * len(codes) - 555,)
        torch.testing.assert_close(sound, whole(model, codes), **CLOSE)
        engine.drop(run)


@pytest.mark.parametrize("frames", [1, 4, 5, 6, 30, 31, 55])
@pytest.mark.parametrize(
    "policy", [BUNDLED, left_context.Policy(chunk=9, context=7, first=2)], ids=["bundled", "with context"]
)
def test_every_frame_of_a_stream_sounds_once(engine: Engine, model: Code2Wav, policy: Policy, frames: int) -> None:
    codes = stream(frames)
    torch.testing.assert_close(heard(engine, chunks(codes, policy)), whole(model, codes), **CLOSE)


def test_the_bundled_stream_sounds_after_five_frames_and_ends_with_nothing(engine: Engine) -> None:
    pieces = [len(outputs(engine, one)[0]["waveform"]) for one in chunks(stream(55), BUNDLED)]
    assert pieces == [5 * 1920 - 555, *[10 * 1920] * 5, 0]


def test_a_stream_without_frames_has_no_sound(engine: Engine) -> None:
    sound = heard(engine, chunks(stream(0), BUNDLED))
    assert (sound.shape, sound.dtype) == ((0,), torch.float32)


def test_a_value_that_is_no_stream_sounds_whole(engine: Engine, model: Code2Wav) -> None:
    codes = stream(9)
    [made] = outputs(engine, call("voc", {"codes": codes}, states=STATES))
    torch.testing.assert_close(made["waveform"], whole(model, codes), **CLOSE)


def test_a_later_stream_of_a_run_begins_anew(engine: Engine, model: Code2Wav) -> None:
    heard(engine, chunks(stream(12, seed=1), BUNDLED))
    codes = stream(12, seed=2)
    torch.testing.assert_close(heard(engine, chunks(codes, BUNDLED)), whole(model, codes), **CLOSE)


def test_streams_at_different_positions_share_a_batch(engine: Engine, model: Code2Wav) -> None:
    one, two = stream(40, seed=1), stream(40, seed=2)
    heard(engine, [chunk(one, 0, 25, "r"), chunk(two, 0, 4, "s")])
    done = serve(engine, chunk(one, 25, 30, "r"), chunk(two, 4, 9, "s"))
    assert [d.batch for d in done] == [2, 2]
    for d, (codes, at) in zip(done, ((one, 25), (two, 4)), strict=True):
        wanted = whole(model, codes)[at * 1920 - 555 : (at + 5) * 1920 - 555]
        torch.testing.assert_close((d.outputs or {})["waveform"], wanted, **CLOSE)
    engine.drop("s")


def test_long_streams_are_decoded_in_pieces_for_their_memory(model: Code2Wav, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = stream(23)
    monkeypatch.setattr("walkgraph.models.qwen3_omni.vocoder.model._ROWS", 10)
    with torch.inference_mode():
        both = torch.stack([codes, codes.flip(0)])
        sound, _ = model.decode(both, torch.zeros(2, dtype=torch.int64), model.fresh(2), first=True)
    for row, one in zip(sound, both, strict=True):
        torch.testing.assert_close(row, whole(model, one), **CLOSE)


@pytest.mark.parametrize("seed", range(3))
def test_captured_steps_make_what_forward_makes_from_each_others_states(seed: int) -> None:
    """Three streams: by steps, by forwards, and by either in turn."""
    operator, dice = Code2wav(random_vocoder(TINY, 4, device=CPU, dtype=torch.float32)), random.Random(seed)
    states = StateTable(KVPools({}), AttentionBackends())
    runner, captured = Runner(states, 0), CapturedSteps(Capturer(CPU), states=states)
    codes, taken, sounds = stream(17, seed), 0, {run: list[Tensor]() for run in ("steps", "forwards", "either")}
    while taken < len(codes):
        start, taken = taken, min(len(codes), taken + dice.randint(1, 6))
        calls = {run: chunk(codes, start, taken, run) for run in sounds}
        beside = ["steps", *(["either"] if dice.random() < 0.5 else [])]
        for runs in beside, [run for run in sounds if run not in beside]:
            given = [calls[run] for run in runs]
            launch = partial(runner.launch_beside, captured) if runs == beside else runner.launch
            for run, result in zip(runs, launch(operator, CPU, given).results(), strict=True):
                assert result.outputs is not None
                sounds[run].append(result.outputs["waveform"])
    wanted = torch.cat(sounds["forwards"])
    for run in ("steps", "either"):
        torch.testing.assert_close(torch.cat(sounds[run]), wanted, **CLOSE)


def test_chunks_of_the_bundled_stream_are_captured_and_its_rest_is_not() -> None:
    operator = Code2wav(random_vocoder(TINY, 4, device=CPU, dtype=torch.float32))
    captured = CapturedSteps(Capturer(CPU), states=StateTable(KVPools({}), AttentionBackends()))
    for inputs in operator.step_examples():
        captured.prepare(operator, inputs, {})
    ready = [captured.key(operator, one) is not None for one in chunks(stream(60), BUNDLED)]
    assert ready == [*[True] * 6, False]


class Unread(TorchFunctionMode):
    """Fails where the host reads a value."""

    READS = frozenset({"item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ in self.READS:
            raise LookupError(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("example", range(2))
def test_a_step_reads_nothing_and_codes_that_only_a_device_knows_fail_alone(example: int) -> None:
    operator = Code2wav(random_vocoder(TINY, 4, device=CPU, dtype=torch.float32))
    codes = torch.stack([stream(3), stream(3)])
    codes[1, 2, 7] = 64
    given = operator.step_examples()[example]
    spec = operator.step_spec({**given, "codes": codes[0]}, {})
    assert spec is not None
    batch = StepBatch(
        rows=torch.tensor([0, 1], dtype=torch.int32),
        inputs={"codes": codes, "start": torch.full((2,), int(given["start"]))},
        params={},
        seed=torch.zeros(2, dtype=torch.int64),
        iteration=torch.zeros(2, dtype=torch.int64),
        tensors={slot: torch.zeros(3, *row.shape) for slot, row in spec.tensors.items()},
        variant=spec.variant,
    )
    with Unread(), torch.inference_mode():
        made = operator.step(batch)
        with pytest.raises(LookupError):
            bool(made.ports["waveform"].isfinite().all())
    assert made.ports["waveform"].shape == (2, *spec.outputs["waveform"].shape)
    assert made.finite is not None
    assert made.finite.tolist() == [True, False]


def test_in_sixteen_bits_it_stays_near_and_chunks_stay_nearer() -> None:
    model = random_vocoder(TINY, 4, device=CPU, dtype=torch.bfloat16)
    exact = random_vocoder(TINY, 4, device=CPU, dtype=torch.float32)
    exact.load_state_dict({name: tensor.float() for name, tensor in model.state_dict().items()})
    packed(exact)
    codes, state, parts = stream(12), model.fresh(1), list[Tensor]()
    assert {one.dtype for one in state} == {torch.bfloat16}
    with torch.inference_mode():
        for start in range(0, 12, 4):
            sound, state = model.decode(codes[None, start : start + 4], torch.tensor([start]), state, first=start == 0)
            parts.append(sound[0])
    wanted, rounded, cut = whole(exact, codes), whole(model, codes), torch.cat(parts)
    assert rounded.dtype == torch.float32
    assert (rounded - wanted).norm() < 0.03 * wanted.norm()
    assert (cut - rounded).norm() < 0.02 * wanted.norm()


@pytest.mark.parametrize(
    ("codes", "message"),
    [
        (torch.zeros(3, 15, dtype=torch.int64), "int64 codes `[n, 16]`, and got int64 [3, 15]"),
        (torch.zeros(16, dtype=torch.int64), "got int64 [16]"),
        (torch.zeros(3, 16), "got float32 [3, 16]"),
        (torch.full((1, 16), 64), "codes from 0 to 63"),
        (torch.full((1, 16), -1), "codes from 0 to 63"),
    ],
)
def test_codes_that_do_not_exist_fail_alone(engine: Engine, codes: Tensor, message: str) -> None:
    bad, good = serve(engine, call("voc", {"codes": codes}, states=STATES), chunk(stream(2), 0, 2, "s"))
    assert bad.error
    assert (bad.error.code, bad.error.port) == ("invalid_input", "codes")
    assert message in bad.error.message
    assert good.error is None
    engine.drop("s")


def test_a_later_chunk_without_the_ones_before_fails(engine: Engine) -> None:
    [done] = serve(engine, chunk(stream(9), 4, 9))
    assert done.error
    assert (done.error.code, done.error.port) == ("node_error", "codes")
    assert "`window`" in done.error.message


@pytest.mark.parametrize("name", sorted(OMNI))
def test_the_declared_sizes_are_those_of_the_network(name: str) -> None:
    config = OMNI[name].code2wav
    assert config is not None
    with unset():
        model = Code2Wav(config)
    assert sum(one.numel() for one in model.parameters()) == NUMBERS[name]


def test_the_published_config_is_read() -> None:
    assert VocoderConfig.published(Fields(section(PUBLISHED))) == PUBLISHED
    assert (PUBLISHED.frame_samples, PUBLISHED.ahead) == (1920, 555)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention_bias", True, "attention_bias"),
        ("hidden_act", "gelu", "can be run"),
        ("decoder_dim", 1000, "decoder_dim"),
        ("upsampling_ratios", [1], "upsampling_ratios"),
        ("upsample_rates", [64, 64, 64, 64], "67108864 samples"),
        ("num_key_value_heads", 5, "num_attention_heads"),
        ("sliding_window", 1, "sliding_window"),
        ("codebook_size", 0, "codebook_size"),
    ],
)
def test_a_config_that_cannot_be_served_is_refused(key: str, value: object, message: str) -> None:
    with pytest.raises((InvalidInput, ValueError), match=message):
        VocoderConfig.published(Fields({**section(PUBLISHED), key: value}))


def test_a_model_without_a_vocoder_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OMNI, "qwen3-omni-silent", replace(OMNI["qwen3-omni-tiny"], code2wav=None))
    with pytest.raises(Refused, match="no vocoder"):
        Code2wav.load(
            LoadContext(
                device=CPU, dtype=torch.float32, folder=None, shared={}, options={}, random=("qwen3-omni-silent", 0)
            )
        )
