"""V-JEPA 2-AC's operators by themselves: batches against calls alone, steps against forwards, samples against runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import StateKey
from walkgraph.abi.step import PagedRows, PagedSlot, Row, StepBatch, StepOutputs
from walkgraph.architectures.drawn import drawn
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.allocator import PAGE, pages_for
from walkgraph.models.vjepa2.model import Vjepa2Encoder, Vjepa2Predictor
from walkgraph.models.vjepa2.operators import Encoder, Predictor
from walkgraph.models.vjepa2.presets import VJEPA2
from walkgraph.models.vjepa2.steps import EncoderSteps, PredictorSteps

CONFIG = VJEPA2["vjepa2-ac-tiny"]
CPU = torch.device("cpu")
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
FRAME = (CONFIG.patches, CONFIG.encoder.width)
NODES = {
    "encoder": ("walkgraph.models.vjepa2.operators:Encoder", {}),
    "one": ("walkgraph.models.vjepa2.operators:Predictor", {"kv": "one"}),
    "kept": ("walkgraph.models.vjepa2.operators:Predictor", {"kv": "kept", "last": "seen_last"}),
}


@pytest.fixture
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:vjepa2-ac-tiny:5", kv_bytes=16 << 20))


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    network = drawn(lambda: Vjepa2Predictor(CONFIG), 5, device=CPU, dtype=torch.float32)
    return Predictor(PredictorSteps(network), CONFIG, CPU, torch.float32)


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def frame(seed: int, *width: int) -> dict[str, Tensor]:
    """The inputs of a predictor, with an axis of samples if there is a width."""
    return {
        "features": random(seed, *width, *FRAME),
        "action": random(seed + 1, *width, 7),
        "pose": random(seed + 2, *width, 7),
    }


def predict(given: Mapping[str, Tensor], run: str, node: str = "one", at: int = 0) -> Any:
    states = {"one": {"kv": "one"}, "kept": {"kv": "kept", "last": "seen_last"}}[node]
    return call(node, dict(given), run=run, states=states, iteration=(at,))


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, **CLOSE)


def counters(engine: Engine, run: str, state: str = "one") -> list[list[int]]:
    return engine.transfers.export(StateKey(run, state))["counters"].tolist()


def test_rollouts_at_different_frames_and_of_different_widths_are_one_batch(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    forward = Predictor.forward

    def counting(self: Predictor, calls: Any, states: Any) -> Any:
        sizes.append(len(calls))
        return forward(self, calls, states)

    monkeypatch.setattr(Predictor, "forward", counting)
    alone: dict[str, Tensor] = {}
    for prefix in ("alone ", "together "):
        # Runs stand at their first, second and third frames.
        for run, before in (("a", 0), ("b", 1), ("c", 2)):
            for at in range(before):
                outputs(engine, predict(frame(10 * at), prefix + run, at=at))
        outputs(engine, predict(frame(50, 3), prefix + "wide"))
        given = {"a": frame(1), "b": frame(2), "c": frame(3), "wide": frame(4, 3)}
        calls = [predict(one, prefix + run, at=9) for run, one in given.items()]
        sizes.clear()
        found = serve(engine, *calls) if prefix == "together " else [serve(engine, one)[0] for one in calls]
        frames = {run: done.outputs["features"] for run, done in zip(given, found, strict=True) if done.outputs}
        assert sizes == ([4] if prefix == "together " else [1] * 4)
        alone = alone or frames
        for run, wanted in alone.items():
            close(frames[run], wanted)
    n = CONFIG.tokens
    assert counters(engine, "together c") == [[3 * n, 3]]
    assert counters(engine, "together wide") == [[2 * n, 2]] * 3


def test_samples_are_as_many_runs(engine: Engine) -> None:
    """The first frame and pose hold for all samples; from the second on each has its own."""
    start, actions = frame(1), random(9, 2, 3, 7)
    wide = {"features": start["features"], "pose": start["pose"], "action": actions[0]}
    [first] = outputs(engine, predict(wide, "wide"))
    poses = random(8, 3, 7)
    [second] = outputs(
        engine, predict({"features": first["features"], "pose": poses, "action": actions[1]}, "wide", at=1)
    )
    for sample in range(3):
        run = f"sample {sample}"
        [one] = outputs(engine, predict({**start, "action": actions[0, sample]}, run))
        close(first["features"][sample], one["features"])
        given = {"features": one["features"], "pose": poses[sample], "action": actions[1, sample]}
        [two] = outputs(engine, predict(given, run, at=1))
        close(second["features"][sample], two["features"])


def test_a_frame_that_is_not_given_is_the_one_predicted_last(engine: Engine) -> None:
    start, following = frame(1), frame(5)
    [one] = outputs(engine, predict(start, "fed"))
    [wanted] = outputs(engine, predict({**following, "features": one["features"]}, "fed", at=1))
    outputs(engine, predict(start, "kept", "kept"))
    del following["features"]
    [found] = outputs(engine, predict(following, "kept", "kept", at=1))
    torch.testing.assert_close(found["features"], wanted["features"], rtol=0, atol=0)
    for node in ("one", "kept"):
        done = serve(engine, predict(following, "nothing yet", node))[0]
        assert done.error is not None
        assert "no frame to continue from" in done.error.message


class Table:
    """A paged state by hand: rows of runs that stand at different frames, with other runs' rows between."""

    def __init__(self, predictor: Predictor, rows: list[int], frames: list[int], width: int = 1) -> None:
        shape = predictor.caches()["kv"]
        table, pages = 2 * max(rows) + 2, pages_for(4 * CONFIG.tokens)
        size = (shape.layers, table * width * pages * PAGE, shape.kv_heads, shape.head_dim)
        k, v = torch.full((2, *size), torch.nan)
        spread = torch.randperm(table * width * pages, generator=torch.Generator().manual_seed(0))
        self.rows = torch.tensor(rows)
        mine = (self.rows[:, None] * width + torch.arange(width)).flatten().int()
        lengths, positions = torch.zeros(2, table * width, dtype=torch.int32)
        for row, count in zip(mine.view(-1, width).tolist(), frames, strict=True):
            lengths[row], positions[row] = count * CONFIG.tokens, count
        places = PagedRows(mine, spread.int().view(-1, pages), lengths, positions)
        self.slot = PagedSlot(k.unbind(), v.unbind(), places)

    def on(self) -> None:
        self.slot.rows.lengths[self.slot.rows.rows.long()] += CONFIG.tokens
        self.slot.rows.positions[self.slot.rows.rows.long()] += 1

    def batch(self, inputs: Mapping[str, Tensor], last: Tensor | None = None) -> StepBatch:
        nothing = torch.zeros(len(self.rows), dtype=torch.int64)
        return StepBatch(
            rows=self.rows.int(),
            inputs=inputs,
            params={},
            seed=nothing,
            iteration=nothing,
            paged={"kv": self.slot},
            tensors={} if last is None else {"last": last},
        )


def stepped(predictor: Predictor, batch: StepBatch) -> StepOutputs:
    with torch.inference_mode():
        return predictor.step(batch)


def stacked(*frames: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {port: torch.stack([one[port] for one in frames]) for port in frames[0]}


def test_steps_are_forwards(engine: Engine, predictor: Predictor) -> None:
    table = Table(predictor, [3, 0], [0, 0])
    for at in range(3):
        given = [frame(10 * at), frame(10 * at + 5)]
        found = stepped(predictor, table.batch(stacked(*given)))
        assert found.finite is not None
        assert found.finite.tolist() == [True, True]
        table.on()
        for run, one, mine in zip("ab", given, found.ports["features"], strict=True):
            close(mine, outputs(engine, predict(one, run, at=at))[0]["features"])


def test_steps_of_samples_are_forwards(engine: Engine, predictor: Predictor) -> None:
    """Two runs of three samples each; their first frame holds for all of a run's."""
    table, action = Table(predictor, [1, 2], [0, 0], width=3), random(4, 2, 3, 7)
    given = {**stacked(frame(1), frame(2)), "action": action}
    found = stepped(predictor, table.batch(given)).ports["features"]
    table.on()
    again = stepped(predictor, table.batch({"features": found, "action": action, "pose": random(5, 2, 3, 7)}))
    for run, start in enumerate((frame(1), frame(2))):
        [first] = outputs(engine, predict({**start, "action": action[run]}, f"run {run}"))
        close(found[run], first["features"])
        second = {"features": first["features"], "action": action[run], "pose": random(5, 2, 3, 7)[run]}
        close(again.ports["features"][run], outputs(engine, predict(second, f"run {run}", at=1))[0]["features"])


def test_a_step_goes_on_from_the_frame_kept_in_its_row(predictor: Predictor) -> None:
    """Fed or not, it keeps what it predicts; before any frame, its row is told to be wrong."""
    fed, kept = Table(predictor, [3, 0], [0, 0]), Table(predictor, [3, 0], [0, 0])
    last, start = torch.zeros(8, *FRAME), stacked(frame(1), frame(2))
    one = stepped(predictor, fed.batch(start)).ports["features"]
    stepped(predictor, kept.batch(start, last))
    torch.testing.assert_close(last[[3, 0]], one)
    fed.on()
    kept.on()
    following = stacked(frame(5), frame(6))
    wanted = stepped(predictor, fed.batch({**following, "features": one}))
    last[0] = 0
    del following["features"]
    found = stepped(predictor, kept.batch(following, last))
    assert found.finite is not None
    assert found.finite.tolist() == [True, False]
    torch.testing.assert_close(found.ports["features"][0], wanted.ports["features"][0])


def test_numbers_that_are_none_are_told_by_row(predictor: Predictor) -> None:
    given = stacked(frame(1), frame(2))
    given["features"][1, 3, 4] = torch.nan
    found = stepped(predictor, Table(predictor, [1, 2], [0, 0]).batch(given))
    assert found.finite is not None
    assert found.finite.tolist() == [True, False]


def test_what_a_step_appends_and_how_many_may_share_one(predictor: Predictor) -> None:
    def spec(given: Mapping[str, Any]) -> Any:
        return predictor.step_spec(given, {})

    one, meta = spec(frame(1)), {name: value.to("meta") for name, value in frame(1, 7000).items()}
    assert (one.appends, one.advances) == ({"kv": CONFIG.tokens}, {"kv": 1})
    assert one.outputs == {"features": Row(FRAME, torch.float32)}
    assert one.sizes == (1, 2, 4, 8, 16)
    assert spec(meta).sizes == (1,)
    assert spec(meta).outputs == {"features": Row((7000, *FRAME), torch.float32)}
    mixed = spec({**frame(1), "action": torch.zeros(4, 7)})
    assert mixed.inputs["features"].shape == FRAME
    assert mixed.outputs["features"].shape == (4, *FRAME)
    assert spec({**frame(1), "pose": torch.zeros(6)}) is None
    assert spec({**frame(1, 3), "action": torch.zeros(4, 7)}) is None
    assert spec({"pose": torch.zeros(7)}) is None


def test_pictures_of_several_runs_are_encoded_as_each_alone() -> None:
    network = drawn(lambda: Vjepa2Encoder(CONFIG), 5, device=CPU, dtype=torch.float32)
    encoder = Encoder(EncoderSteps(network), CONFIG, CPU, torch.float32)
    engine = engine_of(plan_of(NODES, source="random:vjepa2-ac-tiny:5"))
    pictures = random(3, 3, 3, CONFIG.pixels, CONFIG.pixels).clamp(-1, 1)
    nothing = torch.zeros(3, dtype=torch.int64)
    batch = StepBatch(rows=nothing.int(), inputs={"pixels": pictures}, params={}, seed=nothing, iteration=nothing)
    with torch.inference_mode():
        stepped = encoder.step(batch).ports["features"]
    calls = [call("encoder", {"pixels": picture}, run=str(i)) for i, picture in enumerate(pictures)]
    assert encoder.step_spec(encoder.step_inputs(calls[0]) or {}, {}) is not None
    for mine, together, one in zip(stepped, outputs(engine, *calls), calls, strict=True):
        [alone] = outputs(engine, one)
        close(together["features"], alone["features"])
        close(mine, alone["features"])


def test_a_picture_of_another_size_is_refused(engine: Engine) -> None:
    done = serve(engine, call("encoder", {"pixels": torch.zeros(3, 40, 32)}))[0]
    assert done.error is not None
    assert "takes pictures [3, 32, 32], and got [3, 40, 32]; set `size`" in done.error.message
