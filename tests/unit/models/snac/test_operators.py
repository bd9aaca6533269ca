"""The vocoder's operator: every frame of a stream sounds once, alone or in a batch, by forward or by step."""

from collections.abc import Sequence
from typing import cast

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call, ChunkInfo
from walkgraph.abi.states import States
from walkgraph.chunking import sliding
from walkgraph.engine.calls.captured_step import CapturedSteps
from walkgraph.engine.device.capture import Capturer
from walkgraph.engine.engine import Engine
from walkgraph.models.snac.model import Snac, counter_noise, random_snac
from walkgraph.models.snac.operators import Decoder

torch.set_num_threads(1)
CPU = torch.device("cpu")
FRAME, SEED = 2048, 11
PUBLISHED = sliding.Policy(window=28, stride=7)
RAMP = sliding.Policy(window=28, stride=7, first=14)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of({"voc": ("walkgraph.models.snac.operators:Decoder", {})}, source="random:snac-tiny:4"))


@pytest.fixture(scope="module")
def model() -> Snac:
    return random_snac("snac-tiny", 4, device=CPU)


def stream(count: int) -> Tensor:
    return torch.randint(0, 64, (count,), generator=torch.Generator().manual_seed(count))


def windows(codes: Tensor, policy: sliding.Policy, *, flush: bool = True) -> list[Call]:
    """The calls of a stream."""
    made: list[Call] = []
    spec = None
    while (spec := policy.next(spec, len(codes), done=True)) is not None:
        one = call("voc", {"codes": codes[spec.start : spec.stop]}, draws=SEED, flush=flush)
        one.iteration = (spec.index,)
        one.chunks["codes"] = ChunkInfo(spec.index, spec.first, spec.last, spec.valid, spec.context, spec.start)
        made.append(one)
    return made


def naive(model: Snac, calls: Sequence[Call]) -> Tensor:
    """Whole windows decoded one by one; a frame sounds from the first window that may settle it."""
    sounded, parts = 0, [torch.zeros(0)]
    for one in calls:
        info, codes = one.chunks["codes"], one.inputs["codes"]
        skip = -info.start % 7
        frames = (len(codes) - skip) // 7
        if frames < 1:
            continue
        frame = (info.start + skip) // 7
        noise = counter_noise(model.config, torch.tensor([SEED]), torch.tensor([frame]))
        sound = model.decode(codes[None, skip : skip + 7 * frames], noise=noise)[0]
        come = frame + frames
        upto = come if info.last else max(come - 2, 1 if come > 1 else 0)
        parts.append(sound[max(0, sounded - frame) * FRAME : max(sounded, upto) * FRAME - frame * FRAME])
        sounded = max(sounded, upto)
    return torch.cat(parts)


@pytest.mark.parametrize("policy", [PUBLISHED, RAMP], ids=["published", "ramp"])
@pytest.mark.parametrize("count", [1, 7, 13, 14, 20, 21, 28, 30, 34, 35, 63, 66])
def test_every_frame_of_a_stream_sounds_once(engine: Engine, model: Snac, policy: sliding.Policy, count: int) -> None:
    calls = windows(stream(count), policy)
    sound = torch.cat([made["waveform"] for made in outputs(engine, *calls)])
    assert sound.shape == (count // 7 * FRAME,)
    torch.testing.assert_close(sound, naive(model, calls), rtol=0, atol=5e-6)


def test_the_first_sound_leaves_after_two_frames_of_a_ramp(engine: Engine) -> None:
    pieces = [len(made["waveform"]) // FRAME for made in outputs(engine, *windows(stream(42), RAMP))]
    assert pieces == [1, 0, 1, 1, 1, 2]
    pieces = [len(made["waveform"]) // FRAME for made in outputs(engine, *windows(stream(42), PUBLISHED))]
    assert pieces == [2, 1, 1, 2]


@pytest.mark.parametrize("policy", [PUBLISHED, RAMP], ids=["published", "ramp"])
@pytest.mark.parametrize("count", [14, 28, 45])
def test_without_flush_only_the_second_frame_of_full_windows_sounds(
    engine: Engine, model: Snac, policy: sliding.Policy, count: int
) -> None:
    codes = stream(count)
    sound = torch.cat([made["waveform"] for made in outputs(engine, *windows(codes, policy, flush=False))])
    frames = count // 7
    expected = [torch.zeros(0)]
    for start in range(frames - 3):
        noise = counter_noise(model.config, torch.tensor([SEED]), torch.tensor([start]))
        whole = model.decode(codes[None, start * 7 : start * 7 + 28], noise=noise)[0]
        expected.append(whole[FRAME : 2 * FRAME])
    torch.testing.assert_close(sound, torch.cat(expected), rtol=0, atol=5e-6)


def test_a_value_that_is_no_stream_sounds_whole(engine: Engine) -> None:
    [made] = outputs(engine, call("voc", {"codes": stream(24)}, flush=True))
    assert made["waveform"].shape == (3 * FRAME,)
    [made] = outputs(engine, call("voc", {"codes": stream(3)}, flush=True))
    assert made["waveform"].shape == (0,)
    assert made["waveform"].dtype == torch.float32


def test_runs_share_a_batch_and_hear_their_own_noise(engine: Engine) -> None:
    one, two = windows(stream(35), PUBLISHED)[1], windows(stream(35), PUBLISHED)[1]
    two.seed = 12
    alone = outputs(engine, one)[0]["waveform"]
    done = serve(engine, one, two)
    assert [d.batch for d in done] == [2, 2]
    torch.testing.assert_close((done[0].outputs or {})["waveform"], alone, rtol=0, atol=5e-6)
    assert not torch.allclose((done[1].outputs or {})["waveform"], alone, atol=1e-3)


@pytest.mark.parametrize("policy", [PUBLISHED, RAMP], ids=["published", "ramp"])
@pytest.mark.parametrize("count", [1, 14, 66])
def test_a_step_makes_what_forward_makes(model: Snac, policy: sliding.Policy, count: int) -> None:
    operator = Decoder(model, CPU, tf32=False)
    calls = windows(stream(count), policy)
    made = CapturedSteps(Capturer(CPU)).serve
    for one in calls:
        [wanted] = operator.forward([one], cast("States", None))
        served = made(operator, [one], lambda call: {"waveform": None})
        torch.testing.assert_close(served.outputs[0]["waveform"], wanted["waveform"], rtol=0, atol=5e-6)
        assert [flags.tolist() for flags in served.sound] == ([[True]] if len(wanted["waveform"]) else [])


@pytest.mark.parametrize("policy", [PUBLISHED, RAMP], ids=["published", "ramp"])
@pytest.mark.parametrize("flush", [False, True])
def test_windows_of_streams_of_four_frames_and_more_are_made_ready(
    model: Snac, policy: sliding.Policy, flush: bool
) -> None:
    """Or make nothing. Shorter streams are rare, and left to forward."""
    operator, singles = Decoder(model, CPU, tf32=False), CapturedSteps(Capturer(CPU))
    for inputs in operator.step_examples():
        singles.prepare(operator, inputs, {})
    closed = 0
    for count in range(28, 60):
        for one in windows(stream(count), policy, flush=flush):
            if count >= 29 or not one.chunks["codes"].last:
                assert singles.key(operator, one) is not None, (count, one.iteration)
                closed += one.chunks["codes"].last
    assert closed > 30
    short = windows(stream(7), policy)[-1]
    assert singles.key(operator, short) is None


def test_a_window_that_keeps_nothing_is_not_computed(model: Snac) -> None:
    operator = Decoder(model, CPU, tf32=False)
    quiet = windows(stream(42), RAMP)[1]
    singles = CapturedSteps(Capturer(CPU))
    assert singles.key(operator, quiet) is not None, "and so is never captured either"
    operator.step = lambda batch: pytest.fail("it is computed")  # pyright: ignore[reportAttributeAccessIssue]
    served = singles.serve(operator, [quiet, quiet], lambda call: {"waveform": None})
    assert [one["waveform"].shape for one in served.outputs] == [(0,), (0,)]
    assert served.mark is None


def test_windows_that_leave_frames_out_are_refused(engine: Engine) -> None:
    calls = windows(stream(42), sliding.Policy(window=14, stride=7))
    errors = [done.error for done in serve(engine, *calls)]
    assert [error.port if error else None for error in errors] == [None, None, "codes", "codes", "codes", None]
    assert errors[2]
    assert "widen" in errors[2].message


def test_codes_of_a_wrong_kind_are_refused(engine: Engine) -> None:
    [done] = serve(engine, call("voc", {"codes": torch.zeros(7)}, flush=True))
    assert done.error
    assert done.error.port == "codes"
