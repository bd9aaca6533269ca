"""BAGEL's generation weights in eight bits: the change of its velocities, and the precisions that nodes may choose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from tests.unit.models.bagel.test_flow import batch_of, begin, drawn_model, noise, plain, stepped
from walkgraph.abi.calls import StateKey
from walkgraph.abi.operator import LoadContext
from walkgraph.engine.engine import Engine
from walkgraph.errors import Refused
from walkgraph.layers.linear.fp8 import Fp8FlowLinears, flow_linears, quantise
from walkgraph.models.bagel.flow import FlowStep
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import GEN
from walkgraph.models.bagel.operators import Backbone
from walkgraph.models.bagel.precision import at_precision

NODES = {
    name: ("walkgraph.models.bagel.operators:Backbone", {"kv": state})
    for name, state in (("llm", "main"), ("llm_cfg", "cfg"))
}


def engine_at(**precisions: str) -> Engine:
    params = {node: {"precision": precision} for node, precision in precisions.items()}
    return engine_of(plan_of(NODES, source="random:bagel-tiny:5", params=params))


@pytest.fixture(scope="module")
def engines() -> list[Engine]:
    return [engine_at(llm=one, llm_cfg=one) for one in ("bf16", "fp8")]


def off(got: Tensor, wanted: Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


@pytest.mark.parametrize("run", ["none", "text", "pictures, text"])
def test_a_velocity_moves_by_a_few_percent(engines: list[Engine], run: str) -> None:
    found = []
    for engine in engines:
        begin(engine, run)
        found.append(plain(engine, run, noise(1, 4, 6), 0.6))
    assert 0.005 < off(found[1], found[0]) < 0.08


def test_text_is_as_it_was(engines: list[Engine]) -> None:
    states = []
    for engine in engines:
        ids = {"ids": torch.arange(9)}
        outputs(engine, call("llm", ids, run="same", states={"kv": "main"}, temperature=0.0, top_k=0, top_p=1.0))
        states.append(engine.transfers.export(StateKey("same", "main"))["kv.0"])
    assert torch.equal(*states)


def test_a_step_gives_what_forward_gives(engines: list[Engine]) -> None:
    model, runs = drawn_model(), ["text", "pictures, text", "none"]
    for layer in model.language_model.model.layers:
        quantise(layer, GEN)  # pyright: ignore[reportArgumentType]
    latents, times = torch.stack([noise(i, 3, 5) for i in range(3)]), [0.3, 1.0, 0.71]
    found = stepped(FlowStep(model, linears=flow_linears), batch_of(engines[1], runs, latents, times))
    for run, x, time, v in zip(runs, latents, times, found.ports["velocity"], strict=True):
        # A last bit before a rounding to eight bits may be a sixteenth after it.
        assert off(v, plain(engines[1], run, x, time)) < 0.02


@pytest.mark.parametrize("run", ["none", "pictures, text"])
def test_both_sets_can_be_kept_in_four_bits(engines: list[Engine], run: str) -> None:
    four, x = engine_at(llm="int4", llm_cfg="int4"), noise(1, 4, 6)
    begin(four, run)
    wanted = plain(four, run, x, 0.6)
    assert 0.02 < off(wanted, plain(engines[0], run, x, 0.6)) < 0.5
    made = Backbone.load(context(precision="int4"))
    with torch.inference_mode():
        velocity = made.step(batch_of(four, [run], x[None], [0.6])).ports["velocity"][0]
    torch.testing.assert_close(velocity, wanted, rtol=1e-3, atol=1e-4)


def context(**changed: Any) -> LoadContext:
    given: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32, "folder": None, "shared": {}}
    return LoadContext(**{**given, "options": {}, "random": ("bagel-tiny", 5), **changed})


def test_a_backbone_steps_with_the_weights_that_it_keeps(engines: list[Engine]) -> None:
    x = noise(4, 2, 2)
    shared: dict[Any, Any] = {}
    made = [Backbone.load(context(shared=shared, precision="fp8")) for _ in range(2)]
    batch = batch_of(engines[1], ["text"], x[None], [0.4])
    with torch.inference_mode():
        first, again = (one.step(batch).ports["velocity"][0] for one in made)
    assert torch.equal(first, again)
    assert off(first, plain(engines[1], "text", x, 0.4)) < 0.02
    assert isinstance(flow_linears(shared[Bagel].language_model.model.layers[1], GEN), Fp8FlowLinears)


@pytest.mark.parametrize("chosen", [{"llm": "fp8"}, {"llm_cfg": "fp8"}, {"llm": "fp8", "llm_cfg": "bf16"}])
def test_nodes_of_one_set_of_weights_choose_alike(chosen: dict[str, str]) -> None:
    with pytest.raises(Refused, match="must have one `precision`"):
        engine_at(**chosen)


def test_a_gpu_without_such_products_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    asked = context(device=torch.device("cuda"), dtype=torch.bfloat16, precision="fp8")
    with pytest.raises(Refused, match=r"capability 9\.0"):
        at_precision(drawn_model(), asked)
    assert flow_linears(at_precision(drawn_model(), context()).language_model.model.layers[0], GEN)  # pyright: ignore[reportArgumentType]
