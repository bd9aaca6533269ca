"""A rank prepares what requests with default parameters use before the first request: none of their loops waits for a
capture."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import pytest
import torch

from tests.support.local import LocalDeployment
from tests.unit.graphs import test_pi05_acts as pi05
from tests.unit.graphs import test_reach as reach
from tests.unit.graphs import test_vjepa2_runs as vjepa2
from tests.unit.graphs.test_bundled import GRAPHS, placement_of
from tests.unit.graphs.test_orpheus_on_ranks import on_cpus
from tests.unit.graphs.test_shapes_on_ranks import picture
from walkgraph.engine.engine import Engine
from walkgraph.engine.loops.graphs import GraphKey, LoopGraphs
from walkgraph.engine.loops.spec import LoopCall, LoopSpec
from walkgraph.graph import codec
from walkgraph.placement.document import Placement, decode

torch.set_num_threads(1)

Asked = tuple[str, Mapping[str, Any], Mapping[str, list[Any]]]
"""A task, parameters that decide no shape, and inputs."""


def of_pi05() -> list[Asked]:
    return [("act", {}, pi05.asked(*pi05.CAMERAS)), ("act", {}, pi05.asked("base"))]


def of_vjepa2() -> list[Asked]:
    seen = {"image": [vjepa2.encoded(1)], "pose": [vjepa2.pose(1)]}
    return [
        ("begin", {}, seen),
        ("step", {}, {"actions": [vjepa2.actions(1, 1)]}),
        ("rollout", {}, {**seen, "actions": [vjepa2.actions(1, 4)]}),
        ("plan", {"rounds": 2}, {**seen, "goal": [vjepa2.encoded(2)]}),
    ]


def of_reach() -> list[Asked]:
    scene = reach.world.scene(3, 2)
    look = {"camera": [reach.camera(scene)], "instruction": ["reach blue"], "state": [scene[:2]]}
    return [("act", {}, look), ("episode", {"looks": 2}, {"instruction": ["reach blue"]})]


def of_world() -> list[Asked]:
    return [("imagine", {}, {}), ("plan", {"moves": 1}, {}), ("begin", {}, {}), ("step", {}, {})]


def of_shapes() -> list[Asked]:
    return [
        ("text_to_image", {"steps": 10}, {"prompt": ["a red circle"]}),
        ("edit", {"steps": 10}, {"image": [picture()], "instruction": ["now blue"]}),
        ("image_to_text", {}, {"image": [picture()]}),
    ]


def of_orpheus() -> list[Asked]:
    return [("speak", {"max_tokens": 40}, {"text": ["hello"]})]


def one_cpu() -> Placement:
    return decode(pi05.PLACEMENT)


TINY = {"pi05": "random:pi05-tiny:3", "vjepa2": "random:vjepa2-ac-tiny:3", "orpheus": "random:orpheus-tiny:0"}
CASES: dict[str, tuple[Callable[[], Placement], Callable[[], list[Asked]]]] = {
    "pi05": (one_cpu, of_pi05),
    "vjepa2_ac": (one_cpu, of_vjepa2),
    "reach": (lambda: placement_of("reach_one_cpu"), of_reach),
    "world": (lambda: placement_of("world_one_cpu"), of_world),
    "shapes": (lambda: placement_of("shapes_one_cpu"), of_shapes),
    "orpheus": (lambda: on_cpus("orpheus_one_gpu"), of_orpheus),
}


def deployed(graph: str) -> LocalDeployment:
    document = json.loads(GRAPHS[graph].read_text())
    for name, weights in document["weights"].items():
        weights["source"] = TINY.get(name, weights["source"])
        weights["source"] = "random:snac-tiny:0" if name == "snac" else weights["source"]
    if graph == "vjepa2_ac":
        document["nodes"]["picture_in"]["params"]["size"] = vjepa2.CONFIG.pixels
        document["tasks"]["plan"]["params"]["samples"]["default"] = 20
    return LocalDeployment(codec.load(document), CASES[graph][0](), threads=1)


def ready(local: LocalDeployment) -> dict[Any, set[GraphKey]]:
    """Batch key -> what its group replays."""
    groups = [group for engine in local.engines.values() for group in engine.loops.groups]
    return {group.key: set(cast("LoopGraphs", group.graphs).graphs) for group in groups}


def watched(local: LocalDeployment, monkeypatch: pytest.MonkeyPatch) -> list[LoopSpec]:
    """The specs that runs enter from now on."""
    entered: list[LoopSpec] = []

    def add_loop(engine: Engine, call: LoopCall, add: Callable[[LoopCall], None]) -> None:
        entered.append(call.spec)
        add(call)

    for engine in local.engines.values():
        monkeypatch.setattr(engine, "add_loop", partial(add_loop, engine, add=engine.add_loop))
    return entered


@pytest.mark.parametrize("graph", CASES)
def test_requests_with_the_defaults_find_their_loops_ready(graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    local = deployed(graph)
    lowered: list[LoopSpec] = []
    for rank, core in local.cores.items():
        for loop in core.loops():
            local.engines[rank].prepare(loop)
            lowered.append(loop.spec)
    made = ready(local)
    assert made
    entered = watched(local, monkeypatch)
    for number, (task, params, inputs) in enumerate(CASES[graph][1]()):
        session: dict[str, Any] = {"session": "s"} if local.graph.tasks[task].session else {}
        local.submit(str(number), task, params, inputs, **session)
        local.run()
        assert not local.failed
        found = ready(local)
        assert found.keys() == made.keys(), f"`{task}` entered a loop that was not made ready"
        fresh = {key for lane, keys in found.items() for key in keys - made[lane]}
        assert not fresh, f"`{task}` replayed what was not made ready"
    assert entered
    assert all(any(spec is one for one in lowered) for spec in entered), "a run lowered a loop of a size that was known"
