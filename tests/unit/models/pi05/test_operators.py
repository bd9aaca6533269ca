"""pi0.5's operators on a tiny random model: batches answer as single calls, a step as a forward, a prefix as the plain
network; cameras, prompts and what they refuse."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.golden import pi05_tiny as tiny
from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call, StateKey
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import PagedRows, PagedSlot, StepBatch
from walkgraph.checkpoints.statistics import statistics_json
from walkgraph.engine.engine import Engine
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.dense_context import ContextSequence, DenseContext, capacity_for
from walkgraph.engine.kv.pool import Pool
from walkgraph.errors import NotFound
from walkgraph.layers.pictures.patches import normalise
from walkgraph.models.pi05.expert import ExpertRows
from walkgraph.models.pi05.model import Pi05
from walkgraph.models.pi05.operators import (
    ActionExpert,
    Camera,
    Prefill,
    Prompt,
    TimestepConditioning,
    Unnormalise,
    Vision,
    random_pi05,
)
from walkgraph.models.pi05.presets import PI05
from walkgraph.starters.shapes.tokens import FILE

CPU = torch.device("cpu")
CONFIG = PI05["pi05-tiny"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
NODES = {
    "prefix": ("walkgraph.models.pi05.operators:Prefill", {"kv": "main"}),
    "expert": ("walkgraph.models.pi05.operators:ActionExpert", {"kv": "main"}),
    "vision": ("walkgraph.models.pi05.operators:Vision", {}),
    "modulations": ("walkgraph.models.pi05.operators:TimestepConditioning", {}),
    "noise": ("walkgraph.models.pi05.operators:Noise", {}),
}
STATES = {"kv": "main"}
PORTS = ("base", "left_wrist", "right_wrist")
RUNS = {"three": (PORTS, 9), "two": (("base", "right_wrist"), 4), "none": ((), 6), "long": (("left_wrist",), 40)}
"""Cameras and tokens of a prompt."""


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_of(plan_of(NODES, source="random:pi05-tiny:3"))


@pytest.fixture(scope="module")
def model() -> Pi05:
    return random_pi05(CONFIG, 3, device=CPU, dtype=torch.float32)


def context(folder: Path | None = None, **options: Any) -> LoadContext:
    random = None if folder else ("pi05-tiny", 3)
    return LoadContext(device=CPU, dtype=torch.float32, folder=folder, shared={}, options=options, random=random)


def drawn(seed: str, *size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(sum(seed.encode())))


def pictures(run: str) -> Tensor:
    cameras = RUNS[run][0]
    return drawn(f"{run} pixels", len(cameras), 3, CONFIG.picture, CONFIG.picture).clamp(-1, 1)


def ids(run: str) -> Tensor:
    return torch.randint(0, 256, (RUNS[run][1],), generator=torch.Generator().manual_seed(sum(run.encode())))


def single(operator: Operator, one: Call) -> dict[str, Any]:
    """By an operator that has no states."""
    return operator.forward([one], cast(States, None))[0]


def look(model: Pi05, run: str, name: str = "") -> Call:
    """`name`: of another run that sees the same."""
    cameras = RUNS[run][0]
    seen = dict(zip(cameras, model.see(pictures(run)), strict=True)) if cameras else {}
    return call("prefix", {**seen, "ids": ids(run)}, run=name or run, states=STATES)


def begun(engine: Engine, model: Pi05, runs: Sequence[str]) -> None:
    missing = [look(model, run) for run in runs if not engine.transfers.export(StateKey(run, "main"))]
    if missing:
        outputs(engine, *missing)


def flow(engine: Engine, run: str, time: float, horizon: int = 5) -> Call:
    (made,) = outputs(engine, call("modulations", steps=10))
    table = made["modulations"][round((1 - time) * 10)]
    inputs = {"actions": drawn(f"{run} {time}", horizon, CONFIG.action_width), "modulation": table}
    return call("expert", inputs, run=run, states=STATES, time=time, next_time=time - 0.1)


def test_prefixes_of_several_runs_are_read_as_alone(engine: Engine, model: Pi05) -> None:
    outputs(engine, *(look(model, run, f"{run} together") for run in RUNS))
    for run, (cameras, tokens) in RUNS.items():
        outputs(engine, look(model, run, f"{run} alone"))
        together, alone = (engine.transfers.export(StateKey(f"{run} {how}", "main")) for how in ("together", "alone"))
        count = len(cameras) * CONFIG.patches + tokens
        assert together["counters"][0].tolist() == [count, count]
        torch.testing.assert_close(together["kv.0"], alone["kv.0"], **CLOSE)


def test_a_prefix_is_that_of_the_plain_network(engine: Engine, model: Pi05) -> None:
    begun(engine, model, ["two"])
    pool = Pool(ActionExpert.load(context()).caches()["kv"], 8, CPU)
    count = 2 * CONFIG.patches + RUNS["two"][1]
    pool.write(list(range(1, 1 + pages_for(count))), engine.transfers.export(StateKey("two", "main"))["kv.0"])
    wanted = model.read(*model.laid([*pictures("two")[:, None]], ids("two")[None], None)).kv
    for layer, (k, v) in enumerate(wanted):
        torch.testing.assert_close(pool.k[layer][16 : 16 + count], k[0], **CLOSE)
        torch.testing.assert_close(pool.v[layer][16 : 16 + count], v[0], **CLOSE)


def test_captured_prefixes_are_plain_ones(engine: Engine, model: Pi05, monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[str] = []

    def capture(work: Callable[[], None], what: str) -> Callable[[], None]:
        return lambda: (replays.append(what), work())[1]

    def load(cls: type[Prefill], context: LoadContext) -> Prefill:
        return cls(random_pi05(CONFIG, 3, device=CPU, dtype=torch.float32), CPU, torch.float32, capture)

    monkeypatch.setattr(Prefill, "load", classmethod(load))
    captured = engine_of(plan_of(NODES, source="random:pi05-tiny:3"))
    replays.clear()
    for turn, names in enumerate((("three", "two", "none"), ("long",))):
        for one in (captured, engine):
            outputs(one, *(look(model, name, f"{name} captured") for name in names))
        assert replays == [["a prefix of 128 rows"], ["a prefix of 128 rows"] * 2][turn]
    # What goes on from a sequence sees its pages: no graph is made for it.
    for one in (captured, engine):
        outputs(one, look(model, "two", "long captured"))
    assert len(replays) == 2
    for name in RUNS:
        states = [one.transfers.export(StateKey(f"{name} captured", "main")) for one in (captured, engine)]
        assert states[0]["counters"].tolist() == states[1]["counters"].tolist()
        torch.testing.assert_close(states[0]["kv.0"], states[1]["kv.0"], **CLOSE)


def test_the_last_layer_is_needed_for_its_keys_and_values_alone(model: Pi05) -> None:
    x, _ = model.laid([*pictures("two")[:, None]], ids("two")[None], None)
    short, whole = model.read(x), model.read(x, states=True)
    assert short.states.numel() == 0
    assert whole.states.shape == x.shape
    for one, other in zip(short.kv, whole.kv, strict=True):
        for a, b in zip(one, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_flow_steps_of_several_runs_are_those_of_each(engine: Engine, model: Pi05) -> None:
    begun(engine, model, [*RUNS])
    calls = [flow(engine, run, time) for run, time in zip(RUNS, (1.0, 0.5, 0.3, 0.1), strict=True)]
    together = outputs(engine, *calls)
    for one, got in zip(calls, together, strict=True):
        (alone,) = outputs(engine, one)
        torch.testing.assert_close(got["actions"], alone["actions"], **CLOSE)


def test_a_step_is_a_forward(engine: Engine, model: Pi05) -> None:
    runs, times = ("three", "none", "long"), (1.0, 0.4, 0.9)
    begun(engine, model, runs)
    calls = [flow(engine, run, time) for run, time in zip(runs, times, strict=True)]
    wanted = outputs(engine, *calls)
    expert = ActionExpert.load(context())
    spec = expert.step_spec(calls[0].inputs, {})
    assert spec is not None
    assert spec.scratch == {"kv": 5}
    assert spec.key != getattr(expert.step_spec(flow(engine, "none", 1.0, 6).inputs, {}), "key", None)
    slot, room = room_of(expert, engine, runs, 5)
    batch = StepBatch(
        rows=torch.arange(4, dtype=torch.int32),
        inputs={
            port: torch.stack([*(one.inputs[port] for one in calls), calls[0].inputs[port]]) for port in spec.inputs
        },
        params={name: torch.tensor([*(one.params[name] for one in calls), 0.0]) for name in spec.params},
        seed=torch.zeros(4, dtype=torch.int64),
        iteration=torch.zeros(4, dtype=torch.int64),
        paged={"kv": slot},
    )
    with torch.inference_mode():
        got = expert.step(batch).ports["actions"]
    assert room.batch == len(got)
    for index, one in enumerate(wanted):
        torch.testing.assert_close(got[index], one["actions"], **CLOSE)
    assert got[3].isfinite().all()


def room_of(expert: ActionExpert, engine: Engine, runs: Sequence[str], tokens: int) -> tuple[PagedSlot, DenseContext]:
    """Rooms behind the prefixes of an engine's runs, and one for a row that pads the batch."""
    pool, held = Pool(expert.caches()["kv"], 16 * len(runs), CPU), list[ContextSequence]()
    for index, run in enumerate(runs):
        state = engine.transfers.export(StateKey(run, "main"))
        length, position = state["counters"][0].long().tolist()
        pages = list(range(16 * index + 1, 16 * index + 1 + pages_for(length)))
        pool.write(pages, state["kv.0"])
        held.append(ContextSequence(pages, length, position, run))
    room = DenseContext(pool, len(runs) + 1, tokens, capacity_for([row.length for row in held], len(runs) + 1, tokens))
    room.place(held)
    rows = PagedRows(*(torch.zeros(0, dtype=torch.int32) for _ in range(4)))
    return PagedSlot(room.k, room.v, rows, room), room


def test_a_flow_step_is_that_of_the_plain_network(engine: Engine, model: Pi05) -> None:
    begun(engine, model, ["three"])
    prefix = model.read(*model.laid([*pictures("three")[:, None]], ids("three")[None], None))
    for time in (1.0, 0.5):
        one = flow(engine, "three", time)
        (got,) = outputs(engine, one)
        velocity = model.denoise(one.inputs["actions"][None], model.modulations(torch.tensor([time])), prefix)
        torch.testing.assert_close(got["actions"], one.inputs["actions"] - 0.1 * velocity[0], **CLOSE)


def test_modulations_are_made_once_for_a_count_of_steps() -> None:
    operator = TimestepConditioning.load(context())
    first, again = (single(operator, call("m", steps=4))["modulations"] for _ in range(2))
    assert first is again
    assert first.shape == (4, ExpertRows(random_pi05(CONFIG, 3, device=CPU, dtype=torch.float32)).numbers)
    for steps in range(5, 12):
        single(operator, call("m", steps=steps))
    later = single(operator, call("m", steps=4))["modulations"]
    assert later is not first
    assert torch.equal(later, first)


def test_cameras_are_seen_together_as_alone(engine: Engine, model: Pi05) -> None:
    pixels = pictures("three")
    together = outputs(engine, *(call("vision", {"pixels": one}, run=str(i)) for i, one in enumerate(pixels)))
    step = Vision(model).step(
        StepBatch(
            rows=torch.arange(3, dtype=torch.int32),
            inputs={"pixels": pixels},
            params={},
            seed=torch.zeros(3, dtype=torch.int64),
            iteration=torch.zeros(3, dtype=torch.int64),
        )
    )
    for index, one in enumerate(pixels):
        (alone,) = outputs(engine, call("vision", {"pixels": one}, run="alone"))
        torch.testing.assert_close(together[index]["embeddings"], alone["embeddings"], **CLOSE)
        torch.testing.assert_close(step.ports["embeddings"][index], alone["embeddings"], **CLOSE)


def test_levels_are_seen_as_the_pixels_made_of_them(engine: Engine, model: Pi05) -> None:
    side = CONFIG.picture
    levels = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (2, side, side, 3), dtype=np.uint8))
    pixels = [normalise(one).contiguous() for one in levels]
    wanted = outputs(engine, *(call("vision", {"pixels": one}, run=str(i)) for i, one in enumerate(pixels)))
    found = outputs(engine, *(call("vision", {"levels": one}, run=str(i)) for i, one in enumerate(levels)))
    step = Vision(model).step(
        StepBatch(
            rows=torch.arange(2, dtype=torch.int32),
            inputs={"levels": levels},
            params={},
            seed=torch.zeros(2, dtype=torch.int64),
            iteration=torch.zeros(2, dtype=torch.int64),
        )
    )
    for index, one in enumerate(wanted):
        assert torch.equal(found[index]["embeddings"], one["embeddings"])
        assert torch.equal(step.ports["embeddings"][index], one["embeddings"])


def test_pictures_of_one_form_share_captured_steps(model: Pi05) -> None:
    vision, (levels, pixels) = Vision(model), Vision(model).step_examples()
    keys = [spec.key for given in (levels, pixels) if (spec := vision.step_spec(given, {})) is not None]
    assert len(set(keys)) == 2
    assert vision.step_inputs(call("vision", {**levels, **pixels})) == levels
    assert vision.step_inputs(call("vision", {"levels": levels["levels"].long()})) is None
    assert vision.step_spec({}, {}) is None


def test_what_is_absent_is_not_seen(engine: Engine) -> None:
    assert outputs(engine, call("vision", {}, run="nobody")) == [{}]
    assert single(Camera.load(context()), call("c", {})) == {}


def test_noise_follows_from_the_seed(engine: Engine) -> None:
    same, again, other = outputs(
        engine, *(call("noise", run=str(i), horizon=3, width=4, seed=seed) for i, seed in enumerate((5, 5, 6)))
    )
    assert torch.equal(same["actions"], again["actions"])
    assert not torch.equal(same["actions"], other["actions"])


@pytest.mark.parametrize(
    ("node", "inputs", "says"),
    [
        ("vision", {"pixels": torch.zeros(3, 8, 8)}, "takes"),
        ("vision", {"levels": torch.zeros(8, 8, 3, dtype=torch.uint8)}, "takes"),
        ("vision", {"levels": torch.zeros(CONFIG.picture, CONFIG.picture, 3, dtype=torch.int64)}, "takes bytes"),
        ("prefix", {"ids": torch.tensor([1, 259])}, "vocabulary"),
        ("prefix", {"ids": torch.zeros(0, dtype=torch.int64)}, "at least one"),
        ("prefix", {"ids": torch.tensor([1]), "base": torch.zeros(4, 7)}, "takes"),
        ("expert", {"actions": torch.zeros(2, 5), "modulation": torch.zeros(3)}, "actions"),
        ("expert", {"actions": torch.zeros(2, 32), "modulation": torch.zeros(3)}, "timestep_conditioning"),
    ],
)
def test_what_does_not_fit_fails_by_itself(engine: Engine, node: str, inputs: dict[str, Tensor], says: str) -> None:
    states = STATES if node in ("prefix", "expert") else {}
    (done,) = serve(engine, call(node, inputs, run="misfit", states=states, time=1.0, next_time=0.0))
    assert done.error is not None
    assert says in done.error.message


# ── cameras ─────────────────────────────────────────────────────────────────────────────────────


def fitted(levels: np.ndarray) -> Tensor:
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "PNG")
    return single(Camera.load(context()), call("c", {"image": buffer.getvalue()}))["pixels"]


def test_a_picture_of_the_models_size_stays_as_it_is() -> None:
    levels = np.random.default_rng(1).integers(0, 256, (CONFIG.picture, CONFIG.picture, 3), dtype=np.uint8)
    assert torch.equal(fitted(levels), torch.from_numpy(levels).movedim(2, 0) / 255 * 2 - 1)


def test_a_camera_gives_the_forms_that_are_read() -> None:
    picture, buffer = np.random.default_rng(1).integers(0, 256, (48, 48, 3), dtype=np.uint8), io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG")
    camera, one = Camera.load(context()), call("c", {"image": buffer.getvalue()})
    both = single(camera, one)
    assert torch.equal(normalise(both["levels"]), both["pixels"])
    for port, value in both.items():
        one.read = frozenset({port})
        (found,) = single(camera, one).items()
        assert found[0] == port
        assert torch.equal(found[1], value)


@pytest.mark.parametrize(("height", "width", "rows", "columns"), [(48, 96, 16, 32), (90, 30, 32, 10), (16, 12, 32, 24)])
def test_another_keeps_its_shape_on_black(height: int, width: int, rows: int, columns: int) -> None:
    side = CONFIG.picture
    pixels = fitted(np.full((height, width, 3), 255, np.uint8))
    top, left = (side - rows) // 2, (side - columns) // 2
    wanted = torch.full((3, side, side), -1.0)
    wanted[:, top : top + rows, left : left + columns] = 1.0
    assert torch.equal(pixels, wanted)


# ── prompts and the robot's units ───────────────────────────────────────────────────────────────


def said(operator: Prompt, text: Any, state: Tensor, width: int = 0) -> str:
    numbers = single(operator, call("p", {"text": text, "state": state}, state_width=width))["ids"].tolist()
    assert numbers[0] == CONFIG.bos
    return bytes(numbers[1:]).decode()


def test_a_prompt_has_the_state_in_256_levels() -> None:
    prompt, state = Prompt.load(context()), torch.tensor([-1.0, 0.0, 1.0, 0.4, -1.01])
    levels = np.digitize(state.double().numpy(), bins=np.linspace(-1, 1, 257)[:-1]) - 1
    assert said(prompt, " pick_up\nit ", state) == f"Task: pick up it, State: {' '.join(map(str, levels))};\nAction: "
    assert said(prompt, "go", torch.zeros(1), 3) == "Task: go, State: 128 128 128;\nAction: "


def test_robots_have_units_of_their_own(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "pi05")
    (folder / "tokenizer.json").write_bytes(FILE.read_bytes())
    with pytest.raises(NotFound, match="statistics"):
        Prompt.load(context(folder))
    (folder / "norm_stats.json").write_text(statistics_json([(-2, 2), (0, 10)], [(-1, 3), (5, 5)]))
    prompt, back = Prompt.load(context(folder)), Unnormalise.load(context(folder))
    plain = Prompt.load(context())
    actions = torch.tensor([[-1.0, 1.0, 0.25], [0.0, 0.0, -3.0]])
    made = single(back, call("u", {"actions": actions}, width=3))
    torch.testing.assert_close(made["actions"], torch.tensor([[-1.0, 5.0, 0.25], [1.0, 5.0, -3.0]]), rtol=0, atol=2e-6)
    cut = single(back, call("u", {"actions": actions}, width=1))
    assert cut["actions"].shape == (2, 1)
    ours = single(prompt, call("p", {"text": "go", "state": torch.tensor([1.0, 2.6])}, state_width=0))
    there = said(plain, "go", torch.tensor([0.4999, -0.4801]))
    assert " 191 66;" in there
    vocabulary = prompt._vocabulary
    assert vocabulary.decode(ours["ids"].tolist()[1:]) == there.lower()


def test_what_is_no_prompt_is_refused() -> None:
    prompt = Prompt.load(context())
    for text, state in ((3, torch.zeros(2)), ("go", torch.tensor([float("nan")])), ("go", torch.zeros(2, 2))):
        with pytest.raises(Exception, match="takes"):
            said(prompt, text, state)
