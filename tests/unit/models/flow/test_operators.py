from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of, serve
from walkgraph.abi.calls import Call
from walkgraph.abi.step import Row, StepBatch
from walkgraph.engine.engine import Engine
from walkgraph.models.flow import sampler
from walkgraph.models.flow.operators import GuidedEuler

PARAMS: dict[str, Any] = {
    "time": 0.8,
    "next_time": 0.6,
    "text_scale": 4.0,
    "img_scale": 2.0,
    "renorm": "global",
    "renorm_min": 0.0,
}


@pytest.fixture
def engine() -> Engine:
    return engine_of(
        plan_of(
            {
                "noise": ("walkgraph.models.flow.operators:Noise", {}),
                "euler": ("walkgraph.models.flow.operators:GuidedEuler", {}),
            }
        )
    )


def grid(seed: int, height: int = 3, width: int = 2, channels: int = 4) -> Tensor:
    return torch.randn(height, width, channels, generator=torch.Generator().manual_seed(seed))


def euler(run: int, ports: str = "xvti", *, shape: tuple[int, int] = (3, 2), **params: Any) -> Call:
    names = {"x": "latents", "v": "velocity", "t": "velocity_text", "i": "velocity_img"}
    inputs = {names[p]: grid(10 * run + k, *shape) for k, p in enumerate("xvti") if p in ports}
    return call("euler", inputs, run=str(run), **{**PARAMS, **params})


def plain(one: Call) -> Tensor:
    def rows(port: str) -> Tensor | None:
        value = one.inputs.get(port)
        return None if value is None else value.flatten(0, 1)

    velocity = rows("velocity")
    assert velocity is not None
    v = sampler.guide(
        velocity,
        rows("velocity_text"),
        rows("velocity_img"),
        text_scale=float(one.params["text_scale"]),
        image_scale=float(one.params["img_scale"]),
        renorm=one.params["renorm"],  # type: ignore[arg-type]
        renorm_min=float(one.params["renorm_min"]),
    )
    x = one.inputs["latents"]
    return x - v.view(x.shape) * (float(one.params["time"]) - float(one.params["next_time"]))


def test_noise_is_the_seeds_alone(engine: Engine) -> None:
    shape = {"height": 3, "width": 5, "channels": 7}
    a, b, c = outputs(engine, *[call("noise", run=str(s), seed=s, **shape) for s in (1, 2, 1)])
    assert a["latents"].shape == (3, 5, 7)
    assert a["latents"].dtype == torch.float32
    assert torch.equal(a["latents"], c["latents"])
    assert not torch.equal(a["latents"], b["latents"])
    wanted = torch.randn(3, 5, 7, generator=torch.Generator().manual_seed(1))
    assert torch.equal(a["latents"], wanted)
    [negative] = outputs(engine, call("noise", seed=-5, **shape))
    assert negative["latents"].isfinite().all()


@pytest.mark.parametrize("renorm", ["global", "channel", "text_channel", "none"])
@pytest.mark.parametrize("ports", ["xv", "xvt", "xvi", "xvti"])
def test_batched_pictures_are_stepped_as_if_alone(engine: Engine, ports: str, renorm: str) -> None:
    calls = [
        euler(i, ports, renorm=renorm, text_scale=1.0 + i, renorm_min=0.2 * i, time=0.9 - 0.1 * i) for i in range(4)
    ]
    done = serve(engine, *calls)
    assert {d.batch for d in done} == {4}
    for one in done:
        assert one.outputs is not None
        torch.testing.assert_close(one.outputs["latents"], plain(one.call))


def test_what_differs_in_kind_is_another_batch(engine: Engine) -> None:
    calls = [euler(1), euler(2), euler(3, "xv"), euler(4, shape=(1, 1)), euler(5, renorm="none")]
    done = serve(engine, *calls)
    assert [d.batch for d in done] == [2, 2, 1, 1, 1]
    for one in done:
        assert one.outputs is not None
        torch.testing.assert_close(one.outputs["latents"], plain(one.call))


def test_a_velocity_of_another_shape_fails_its_run_alone(engine: Engine) -> None:
    bad, good = euler(1), euler(2)
    bad.inputs["velocity_text"] = grid(0, 1, 1)
    failed, served = serve(engine, bad, good)
    assert failed.error is not None
    assert failed.error.port == "velocity_text"
    assert served.error is None


def test_the_estimate_is_the_step_to_the_end(engine: Engine) -> None:
    one, to_the_end = euler(1), euler(2, next_time=0.0)
    to_the_end.inputs = one.inputs
    first, last = outputs(engine, one, to_the_end)
    torch.testing.assert_close(first["estimate"], last["latents"])
    assert not torch.allclose(first["estimate"], first["latents"])


def stepped(calls: list[Call]) -> dict[str, Tensor]:
    """The rows of `calls` through a step, whose spec a loop that is entered with latents alone has asked for."""
    first, zeros = calls[0], torch.zeros(len(calls), dtype=torch.int64)
    spec = GuidedEuler().step_spec({"latents": first.inputs["latents"]}, {"renorm": first.params["renorm"]})
    assert spec is not None
    row = Row(tuple(first.inputs["latents"].shape), torch.float32)
    assert spec.outputs == {"latents": row, "estimate": row}
    assert all(spec.inputs[port] == row for port in first.inputs)
    batch = StepBatch(
        rows=zeros.int(),
        inputs={port: torch.stack([one.inputs[port] for one in calls]) for port in first.inputs},
        params={name: torch.tensor([float(c.params[name]) for c in calls]).to(t) for name, t in spec.params.items()},
        seed=zeros,
        iteration=zeros,
        variant=spec.variant,
    )
    return dict(GuidedEuler().step(batch).ports)


@pytest.mark.parametrize("renorm", ["global", "channel", "text_channel", "none"])
@pytest.mark.parametrize("ports", ["xv", "xvt", "xvi", "xvti"])
def test_a_step_is_a_forward(engine: Engine, ports: str, renorm: str) -> None:
    calls = [
        euler(i, ports, renorm=renorm, text_scale=1.0 + i, img_scale=2.0 - i, renorm_min=0.3 * i, time=0.9 - 0.1 * i)
        for i in range(3)
    ]
    found = stepped(calls)
    for index, wanted in enumerate(outputs(engine, *calls)):
        for port in ("latents", "estimate"):
            assert found[port][index].shape == wanted[port].shape
            torch.testing.assert_close(found[port][index], wanted[port])
        torch.testing.assert_close(found["latents"][index], plain(calls[index]))


@pytest.mark.parametrize(
    ("inputs", "params"),
    [({}, {"renorm": "none"}), ({"latents": torch.zeros(2, 2)}, {"renorm": "none"}), ({"latents": grid(1)}, {})],
)
def test_a_loop_that_begins_without_latents_is_not_stepped(inputs: dict[str, Any], params: dict[str, Any]) -> None:
    assert GuidedEuler().step_spec(inputs, params) is None


def test_noise_takes_the_size_of_latents_that_it_is_like(engine: Engine) -> None:
    def drawn(height: int, width: int, like: Tensor | None) -> Tensor:
        inputs = {} if like is None else {"like": like}
        given = {"height": height, "width": width, "channels": 4, "seed": 3}
        return outputs(engine, call("noise", inputs, **given))[0]["latents"]

    assert torch.equal(drawn(0, 0, grid(1, 5, 7)), drawn(5, 7, None))
    assert drawn(2, 3, grid(1, 5, 7)).shape == (2, 3, 4)
    [done] = serve(engine, call("noise", height=0, width=4, channels=4, seed=3))
    assert done.error is not None
    assert "has no size" in done.error.message


def test_steps_are_as_long_as_those_between_the_times_of_a_tensor(engine: Engine) -> None:
    """Latents of zeros along a velocity of -1 become the step itself."""
    times = sampler.timesteps(50, 3.0)
    calls = [euler(i, "xv", time=float(t), next_time=float(to)) for i, (t, to) in enumerate(itertools.pairwise(times))]
    for one in calls:
        one.inputs.update(latents=torch.zeros(3, 2, 4), velocity=-torch.ones(3, 2, 4))
    wanted = (times[:-1] - times[1:]).tolist()
    assert [float(given["latents"].unique()) for given in outputs(engine, *calls)] == wanted
    assert [float(row.unique()) for row in stepped(calls)["latents"]] == wanted
