"""On a GPU: windows of sound by captured steps concurrent with loop steps, against the eager forward."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace as with_fields
from torch import Tensor

from tests.support.loop_calls import LoopInput, WrittenUse, written
from tests.unit.engine.plans import plan_of
from tests.unit.models.snac.test_operators import PUBLISHED, RAMP, SEED, stream, windows
from walkgraph.abi.calls import Call
from walkgraph.chunking import sliding
from walkgraph.engine.calls.chunked_prefill import Done
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.loop_runs import LoopDone, Stepped
from walkgraph.engine.loops.spec import LoopCall, LoopOutput
from walkgraph.ids import Rank
from walkgraph.layers.sound import snake

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def engine(*, capture: bool) -> Engine:
    nodes: dict[str, tuple[str, dict[str, str]]] = {
        "voc": ("walkgraph.models.snac.operators:Decoder", {}),
        "noop": ("walkgraph.models.synthetic.operators:Noop", {}),
    }
    plan = plan_of(nodes, source="random:snac-24khz:4", params={"noop": {"stop_at": 1 << 40}})
    here = Engine(with_fields(plan, ranks=(with_fields(plan.ranks[0], device="cuda:0"),)), Rank(0), capture=capture)
    here.load()
    return here


def insides(count: int) -> list[Call]:
    """Windows inside a stream, of as many runs."""
    found = [windows(stream(70 + number), PUBLISHED)[2] for number in range(count)]
    for number, one in enumerate(found):
        one.run, one.seed = f"voice {number}", number
    return found


def loop(times: int) -> LoopCall:
    token = LoopInput("token", "value", torch.zeros(1, dtype=torch.int64), carried=(0, "token"))
    use = WrittenUse("noop", (token,), {"stop_at": 1 << 40}, {}, {}, 0)
    outputs = (LoopOutput("token", 0, "token", "last"),)
    return written("counter", "count", 0, 0, "tokens", (), (use,), times, (0, "stop"), outputs, grain=0)


def sounds(here: Engine, calls: list[Call]) -> list[Tensor]:
    return [sound.cpu() for sound in served(here, calls)]


def served(here: Engine, calls: list[Call]) -> list[Tensor]:
    """On the device, in the order of the calls, which are all there at once."""
    for one in calls:
        here.add(one)
    found: dict[int, Tensor] = {}
    while not here.idle:
        for event in here.step():
            assert isinstance(event, Done)
            assert event.error is None, event.error
            assert event.outputs is not None
            found[id(event.call)] = event.outputs["waveform"]
    return [found[id(one)] for one in calls]


@pytest.mark.parametrize("policy", [PUBLISHED, RAMP], ids=["published", "ramp"])
def test_captured_windows_sound_as_eager_ones(policy: sliding.Policy) -> None:
    calls = [one for count in (28, 33, 63, 70) for one in windows(stream(count), policy)]
    for number, one in enumerate(calls):
        one.run, one.seed = str(number), SEED + number % 7
    captured, eager = sounds(engine(capture=True), calls), sounds(engine(capture=False), calls)
    assert sum(len(one) for one in captured) == (4 + 4 + 9 + 10) * 2048
    for mine, wanted in zip(captured, eager, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=2e-5)


def test_windows_do_not_wait_for_what_is_launched_before_them() -> None:
    here, calls = engine(capture=True), insides(5)
    sounds(here, calls)
    torch.cuda._sleep(2 * 10**9)  # pyright: ignore[reportPrivateUsage]
    behind = torch.cuda.Event()
    behind.record()
    # Reading what was served would wait for the main stream.
    assert len(served(here, calls)) == 5
    assert not behind.query()
    behind.synchronize()


def test_what_is_made_on_the_device_is_waited_for() -> None:
    here = engine(capture=True)
    calls = insides(3)
    wanted = sounds(here, calls)
    torch.cuda._sleep(10**8)  # pyright: ignore[reportPrivateUsage]
    for one in calls:
        one.inputs["codes"] = one.inputs["codes"].cuda(non_blocking=True) + 0
    for mine, other in zip(sounds(here, calls), wanted, strict=True):
        assert torch.equal(mine, other)


def test_loops_go_on_while_windows_are_under_way_and_both_come_out_right() -> None:
    here, calls = engine(capture=True), insides(32)
    alone = sounds(here, calls)
    here.prepare(loop(1))
    here.time_steps(on=True)
    here.add_loop(loop(20_000))
    found: dict[str, Tensor] = {}
    between, ends, left, waiting = 0, 0, 40, 0
    while not here.idle:
        if not waiting and left:
            left, waiting = left - 1, len(calls)
            for one in calls:
                here.add(one)
        for event in here.step():
            if isinstance(event, Stepped):
                between += waiting > 0
            elif isinstance(event, LoopDone):
                assert event.error is None
                assert event.outputs is not None
                ends = int(event.outputs["token"])
            elif isinstance(event, Done):
                assert event.outputs is not None
                waiting -= 1
                found[event.call.run] = event.outputs["waveform"]
    assert ends == 20_000
    assert between > 40
    for one, wanted in zip(calls, alone, strict=True):
        torch.testing.assert_close(found[one.run].cpu(), wanted.cpu(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("places", [57, 2126])
def test_snakes_and_noise_of_the_kernels_are_the_twins(places: int) -> None:
    generator = torch.Generator().manual_seed(places)
    x, add = (torch.randn(3, 5, places + 7, generator=generator)[..., 4:-3] for _ in range(2))
    alpha, bias, scale = (torch.rand(n, generator=generator) + 0.5 for n in ((5,), (5,), (3, places)))
    for given in ((None, None), (add, None), (add, bias)):
        made = snake.snake(x.cuda(), alpha.cuda(), *(one if one is None else one.cuda() for one in given))
        torch.testing.assert_close(made.cpu(), snake.snake(x, alpha, *given), rtol=0, atol=5e-6)
    pair = snake.add_snake(x.cuda(), alpha.cuda(), add.cuda(), None, scale.cuda())
    for mine, wanted in zip(pair, snake.add_snake(x, alpha, add, None, scale), strict=True):
        torch.testing.assert_close(mine.cpu(), wanted, rtol=0, atol=5e-6)
    seed, first = torch.tensor([5, -(2**62) - 9, 1]), torch.tensor([0, 2**40, 77])
    for stage in range(4):
        mine = snake.place_noise(seed.cuda(), stage, first.cuda(), places)
        assert torch.equal(mine.cpu(), snake.place_noise(seed, stage, first, places))
