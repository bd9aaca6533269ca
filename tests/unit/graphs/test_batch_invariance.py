"""Under `batch_invariant`, every number of a run is the same alone and among others, for all operators of the bundled
graphs: called one by one, and in loops on the device."""

import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.golden.qwen3_omni import whole as omni
from tests.support.local import LocalDeployment
from tests.unit.graphs import test_pi05_acts as robot
from tests.unit.graphs import test_vjepa2_runs as imagining
from tests.unit.graphs.test_bundled import GRAPHS
from walkgraph.components import catalogue
from walkgraph.engine.engine import Done, Engine
from walkgraph.engine.loops.loop_runs import LoopDone
from walkgraph.engine.loops.spec import Items
from walkgraph.graph import codec
from walkgraph.graph.conversation import Conversation, Turn, TurnPart
from walkgraph.placement.document import decode

ONE = {
    "format": "walkgraph/placement@1",
    "name": "one",
    "groups": [{"nodes": ["*"], "ranks": [0]}],
    "ranks": [{"rank": 0, "device": "cpu"}],
}
Numbers = dict[Any, Any]
"""The place where a value was made in its run -> the value."""


class Asked(NamedTuple):
    task: str
    params: Mapping[str, Any]
    inputs: Mapping[str, Sequence[Any]]


class Family(NamedTuple):
    graph: str
    sources: Mapping[str, str]
    """Sources of the graph's weights, where they aren't the bundled ones."""
    nodes: Mapping[str, Mapping[str, Any]]
    """Parameters that the tiny networks need."""
    runs: Sequence[Asked]


def picture(seed: int, width: int = 64, height: int = 48) -> bytes:
    levels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(levels).save(buffer, "PNG")
    return buffer.getvalue()


def bagel() -> Family:
    size = {"min_side": 16, "max_side": 64}
    context = {"context": 512}
    draw = {**context, "height": 256, "width": 256, "shift": 3.0}
    edit = {**context, "cfg_img_scale": 2.0}
    return Family(
        "bagel",
        {"bagel": "random:bagel-tiny:0"},
        {
            "vae_picture": {**size, "stride": 16},
            "vit_picture": {**size, "stride": 8},
            "noise": {"height": "=height // 64", "width": "=width // 128", "channels": 16},
        },
        [
            Asked("text_to_image", {**draw, "steps": 4, "preview_every": 2, "seed": 1}, {"prompt": ["a red circle"]}),
            Asked("text_to_image", {**draw, "steps": 4, "seed": 2}, {"prompt": ["blue"]}),
            Asked("edit", {**edit, "steps": 3, "seed": 3}, {"image": [picture(1)], "instruction": ["now blue"]}),
            Asked("edit", {**edit, "steps": 3, "seed": 4, "think": True, "max_tokens": 4},
                  {"image": [picture(2)], "instruction": ["green"]}),
            Asked("image_to_text", {"max_tokens": 17}, {"image": [picture(1)]}),
            Asked("image_to_text", {"max_tokens": 17}, {"image": [picture(3, 40, 60)], "prompt": ["what is it?"]}),
        ],
    )  # fmt: skip


def orpheus() -> Family:
    how = {"temperature": 1.0}
    return Family(
        "orpheus",
        {"orpheus": "random:orpheus-tiny:0", "snac": "random:snac-tiny:0"},
        {},
        [
            Asked("speak", {**how, "seed": 3, "max_tokens": 43}, {"text": ["hello"]}),
            Asked("speak", {**how, "seed": 4, "max_tokens": 36}, {"text": ["hello you"]}),
            Asked("speak", {**how, "seed": 5, "max_tokens": 35}, {"text": ["x"]}),
        ],
    )


def llm() -> Family:
    """Long prompts too: those of more rows than a step's linears serve."""
    how = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 17}
    texts = ("hello", "hello, you who read a long text " * 3, "x")
    chat = Conversation((Turn("user", (TurnPart("text", "hello"),)),))
    told = {"logprobs": True, "top_logprobs": 3}
    bias = torch.tensor([[7.0, 4.0], [9.0, -100.0]])
    return Family(
        "llm",
        {"llm": "random:qwen3-moe-tiny:0"},
        {},
        [
            *(Asked("complete", {**how, "seed": seed}, {"prompt": [text]}) for seed, text in enumerate(texts)),
            Asked("chat", {**how, **told, "seed": 4}, {"messages": [chat]}),
            Asked("complete", {**how, **told, "seed": 5}, {"prompt": ["hello"], "logit_bias": [bias]}),
        ],
    )


def pi05() -> Family:
    chunk = {"horizon": 6, "action_width": 5, "steps": 3}
    return Family(
        "pi05",
        {"pi05": "random:pi05-tiny:3"},
        {},
        [
            Asked("act", {**chunk, "seed": 7}, robot.asked("base", "left_wrist")),
            Asked("act", {**chunk, "seed": 8}, robot.asked("base")),
            Asked("act", {**chunk, "seed": 9}, robot.asked("right_wrist")),
        ],
    )


def vjepa2() -> Family:
    plan = {**imagining.PLAN, "rounds": 2}
    return Family(
        "vjepa2_ac",
        {"vjepa2": "random:vjepa2-ac-tiny:3"},
        {"picture_in": {"size": imagining.CONFIG.pixels}},
        [
            Asked("encode", {}, {"image": [imagining.encoded(1)]}),
            *(Asked("rollout", {"horizon": n}, imagining.asked(seed, n)) for seed, n in enumerate((4, 4, 2))),
            *(Asked("plan", {**plan, "seed": seed}, imagining.planned_for()) for seed in (11, 12)),
        ],
    )


def reach() -> Family:
    params = {"apply": 2, "steps": 2, "side": 48, "looks": 2}
    words = {"instruction": ["find the yellow dot"]}
    return Family("reach", {}, {}, [Asked("episode", {**params, "seed": seed}, words) for seed in (12, 13)])


def world() -> Family:
    film = {"drive": "square", "horizon": 2, "scale": 1}
    plan = {"moves": 1, "samples": 4, "rounds": 1, "top": 2, "scale": 1}
    runs = [
        *(Asked("begin", {"seed": seed, "scale": 1}, {}) for seed in (5, 6)),
        *(Asked("imagine", {**film, "seed": seed}, {}) for seed in (1, 2)),
        *(Asked("plan", {**plan, "seed": seed}, {}) for seed in (3, 4)),
    ]
    return Family("world", {}, {}, runs)


def qwen3_omni() -> Family:
    how = {"temperature": 1.0, "max_tokens": 8, "max_frames": 7}
    film = {"every": 2, "frames": 4, "frame_pixels": 131_072}
    watched = {"video": [omni.VIDEO.read_bytes()], "text": ["what is it?"]}
    return Family(
        "qwen3_omni",
        {"omni": "random:qwen3-omni-tiny:0"},
        {},
        [
            Asked("chat", {**how, "seed": 1}, {"text": ["hello"]}),
            Asked("chat", {**how, "seed": 2}, {"text": ["hi, you"], "audio": [omni.sound(9_000)]}),
            Asked("chat", {**how, "seed": 3}, {"image": [omni.picture(96, 64)], "audio": [omni.sound(6_000)]}),
            *(
                Asked("watch", {**how, **film, "seed": 4, "use_audio_in_video": heard}, watched)
                for heard in (False, True)
            ),
            Asked("say", {"max_frames": 7, "seed": 5}, {"text": ["hi"]}),
        ],
    )


def voice() -> Family:
    how = {"temperature": 1.0, "max_frames": 30}
    texts = ("a red circle", "blue, and so on", "x")
    runs = [
        Asked("say", {**how, "seed": seed, "shift": 2.0 * seed}, {"text": [text]}) for seed, text in enumerate(texts)
    ]
    return Family("voice", {}, {}, runs)


FAMILIES = {made.__name__: made for made in (bagel, orpheus, llm, pi05, vjepa2, reach, world, qwen3_omni, voice)}
DECODERS = {"bagel", "orpheus", "llm", "qwen3_omni", "voice"}
"""Graphs of tokens: their steps are `invariant`."""


class Recorded(Engine):
    """Keeps what its calls and loops give."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.found: dict[str, Numbers] = {}
        self.called: set[str] = set()
        self.rows = 0
        """Rows of the fullest launch of a loop."""

    def step(self) -> list[Any]:
        events = super().step()
        for event in events:
            self._keep(event)
        return events

    def _keep(self, event: Any) -> None:
        match event:
            case Done(call=call, outputs=outputs):
                place = (call.walk, call.step, call.use, call.iteration)
                nodes = [call.node]
            case Items(call=call, first=first, values=outputs):
                place = (call.walk, call.step, call.use, call.iteration, first)
                nodes = []
            case LoopDone(call=call, outputs=outputs, batch=batch):
                self.rows = max(self.rows, batch)
                place = (call.walk, call.step, call.use, call.iteration, "end")
                nodes = [use.node for use in call.spec.uses]
            case _:
                return
        self.called.update(nodes)
        # What a loop on the device hands on next is in a table that others write into.
        kept = {port: value.clone() if isinstance(value, Tensor) else value for port, value in (outputs or {}).items()}
        self.found.setdefault(call.run, {}).update({(*place, port): value for port, value in kept.items()})


class Served(LocalDeployment):
    engine_type = Recorded


@cache
def deployment(family: str, *, resident: bool) -> Served:
    made = FAMILIES[family]()
    document = json.loads(GRAPHS[made.graph].read_text())
    for name, source in made.sources.items():
        document["weights"][name]["source"] = source
    for node, params in made.nodes.items():
        document["nodes"][node]["params"] |= params
    return Served(codec.load(document), decode(ONE), threads=1, resident=resident, batch_invariant=True)


def served(local: Served, family: str, runs: Sequence[int], name: str) -> dict[int, Numbers]:
    """All at once, in this order."""
    [engine] = local.engines.values()
    assert isinstance(engine, Recorded)
    for run in runs:
        task, params, inputs = FAMILIES[family]().runs[run]
        local.submit(f"{name} {run}", task, params, inputs, session=f"{name} {run}")
    local.run()
    assert not local.failed
    return {run: {**engine.found.pop(f"{name} {run}"), **local.outputs[f"{name} {run}"]} for run in runs}


def differ(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape != other.shape or one.dtype != other.dtype or not torch.equal(one, other)
    if isinstance(one, list | tuple):
        return len(one) != len(other) or any(map(differ, one, other))
    return one != other


@cache
def alone(family: str, *, resident: bool) -> dict[int, Numbers]:
    """Each by itself, one after the other."""
    local, found = deployment(family, resident=resident), dict[int, Numbers]()
    for run in range(len(FAMILIES[family]().runs)):
        found |= served(local, family, [run], "alone")
    return found


@pytest.mark.parametrize("resident", [True, False], ids=["looped", "stepped"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_s_numbers_are_its_own(family: str, resident: bool) -> None:
    local, wanted = deployment(family, resident=resident), alone(family, resident=resident)
    for name, order in (("among", [*reversed(wanted)]), ("beside", list(wanted)[1:3])):
        for run, numbers in served(local, family, order, name).items():
            assert numbers.keys() == wanted[run].keys()
            assert [place for place, value in numbers.items() if differ(value, wanted[run][place])] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_only_decoders_of_tokens_run_together(family: str) -> None:
    assert alone(family, resident=True)
    local = deployment(family, resident=True)
    served(local, family, range(len(FAMILIES[family]().runs)), "rows")
    [engine] = local.engines.values()
    assert isinstance(engine, Recorded)
    assert (engine.rows > 1) is (family in DECODERS)


def test_no_operator_is_left_out() -> None:
    """Covers the graphs whose components all have networks; the synthetic ones have their own tests."""
    known, wanted, called = catalogue(), set[str](), set[str]()
    for name, path in GRAPHS.items():
        components = {node["component"] for node in json.loads(path.read_text())["nodes"].values()}
        if not name.startswith("synthetic") and all(known[component].network for component in components):
            wanted |= components
    for family in FAMILIES:
        assert alone(family, resident=False)
        local = deployment(family, resident=False)
        for engine in local.engines.values():
            assert isinstance(engine, Recorded)
            called |= {local.graph.nodes[node].component for node in engine.called}
    assert wanted <= called
