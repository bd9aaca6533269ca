"""The context of each guidance branch while drawing, compared with the three contexts of the public inferencer."""

from collections.abc import Mapping
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.document import FirstStep, Fork, ForStep, Graph, Step, Task, WalkStep
from walkgraph.graph.language.expressions import evaluate, parse
from walkgraph.graph.structure import Entry, structure
from walkgraph.models.flow import sampler
from walkgraph.resources import bundled

Parts = list[tuple[str, str]]
"""(modality, what it is)."""
Contexts = dict[str, list[str]]


@cache
def graph(name: str) -> Graph:
    return codec.load(bundled("graphs")[name].read_bytes())


class Reader:
    """Runs a task's steps as far as what the caches keep: blocks by name, one loop iteration for a whole loop."""

    def __init__(self, graph: Graph, task: Task, params: dict[str, Scalar]) -> None:
        self.graph = graph
        self.params = {name: param.default for name, param in task.params.items() if param.default is not None} | params
        self.states: Contexts = {name: [] for name, state in graph.states.items() if state.kind == "paged_kv"}
        self.walks: list[str] = []

    def run_all(self, task: Task, parts: Parts) -> None:
        assert isinstance(task.steps, tuple)
        self.run(task.steps, parts)

    def holds(self, when: str | None) -> bool:
        return when is None or evaluate(parse(when), self.params, {"index": 0, "denoise": 0}) is True

    def run(self, steps: tuple[Step, ...], parts: Parts, part: str = "") -> None:
        for step in steps:
            match step:
                case WalkStep():
                    if self.holds(step.when):
                        self.walk(step, part)
                case FirstStep():
                    self.walk(next(option for option in step.first if self.holds(option.when)), part)
                case ForStep():
                    for modality, what in parts:
                        self.run(step.branches[modality], [], what)

    def walk(self, step: WalkStep, part: str) -> None:
        self.walks.append(step.walk)
        # What a part's step binds of one before it is made from the same part.
        bound = [str(value) if str(value).startswith("@task") or not part else part for value in step.with_.values()]
        walk = structure(self.graph.walks[step.walk])
        for entry in walk.entries:
            if not all(self.holds(when) for when in entry.whens):
                continue
            if isinstance(entry.item, Fork):
                self.states[entry.item.into] = list(self.states[entry.item.fork])
            else:
                self.append(entry, {port for use, port in walk.feeds if use == entry.name}, *bound)

    def append(self, entry: Entry, fed: set[str], what: str = "written") -> None:
        node = self.graph.nodes[entry.node]
        for use in catalogue()[node.component].states:
            for append in use.appends:
                if append.port in fed and not append.scratch:
                    self.states[node.states[use.slot]].append(f"{append.port} {what}")


def reference(parts: Parts, think: bool) -> Contexts:
    """The contexts as the public inferencer keeps them: a copy of the whole before each text and after each image."""
    main, text, img = [], [], []
    if think:
        main, img = ["ids @task.system_prompt"], ["ids @task.system_prompt"]
    for modality, what in parts:
        if modality == "text":
            text = list(main)
            main, img = [*main, f"ids {what}"], [*img, f"ids {what}"]
        else:
            main = [*main, f"clean {what}", f"image {what}"]
            text = list(main)
    if think:
        main = [*main, "token written", "ids decode.token"]
    return {"main": main, "cfg_text": text, "cfg_img": img}


PARTS = st.lists(st.sampled_from(("text", "image")), min_size=1, max_size=6).map(
    lambda kinds: [(kind, f"{kind} {i}") for i, kind in enumerate(kinds)]
)


@pytest.mark.parametrize("name", ["shapes", "bagel"])
@given(parts=PARTS)
def test_edit_reads_into_the_three_contexts(name: str, parts: Parts) -> None:
    found = graph(name)
    reader = Reader(found, found.tasks["edit"], {"cfg_text_scale": 4.0, "cfg_img_scale": 2.0})
    reader.run_all(found.tasks["edit"], parts)
    assert reader.states == reference(parts, think=False)
    assert reader.walks[-1] == "image_gen_cfg"


@given(parts=PARTS)
def test_a_thought_is_read_by_the_main_context_alone(parts: Parts) -> None:
    found = graph("bagel")
    params: dict[str, Scalar] = {"think": True, "cfg_text_scale": 4.0, "cfg_img_scale": 2.0}
    reader = Reader(found, found.tasks["edit"], params)
    reader.run_all(found.tasks["edit"], parts)
    assert reader.states == reference(parts, think=True)


@pytest.mark.parametrize("name", ["shapes", "bagel"])
def test_drawing_a_caption_forks_the_empty_context_and_spares_the_third_branch(name: str) -> None:
    found = graph(name)
    reader = Reader(found, found.tasks["text_to_image"], {})
    reader.run_all(found.tasks["text_to_image"], [("text", "caption")])
    assert reader.states == {"main": ["ids caption"], "cfg_text": [], "cfg_img": []}
    assert reader.walks == ["prefill_text", "image_gen_cfg"]


@pytest.mark.parametrize("name", ["shapes", "bagel"])
def test_without_guidance_one_branch_reads_and_draws(name: str) -> None:
    found = graph(name)
    reader = Reader(found, found.tasks["edit"], {"cfg_text_scale": 1.0, "cfg_img_scale": 1.0})
    reader.run_all(found.tasks["edit"], [("image", "scene"), ("text", "change")])
    assert reader.states == {"main": ["clean scene", "image scene", "ids change"], "cfg_text": [], "cfg_img": []}
    assert reader.walks[-1] == "image_gen"


@pytest.mark.parametrize("name", ["shapes", "bagel"])
def test_describing_a_picture_sees_it_once(name: str) -> None:
    found = graph(name)
    reader = Reader(found, found.tasks["image_to_text"], {})
    reader.run_all(found.tasks["image_to_text"], [("image", "scene")])
    assert reader.states == {"main": ["image scene", "token written"], "cfg_text": [], "cfg_img": []}


@pytest.mark.parametrize("name", ["shapes", "bagel"])
@pytest.mark.parametrize("task", ["text_to_image", "edit"])
def test_pictures_are_not_compared_where_the_text_is_not(name: str, task: str) -> None:
    """The published code looks at the pictures' scale where the text's is above 1; nothing is read for it otherwise."""
    found, parts = graph(name), [("text", "first"), ("image", "scene"), ("text", "change")]
    reader = Reader(found, found.tasks[task], {"cfg_text_scale": 1.0, "cfg_img_scale": 2.0})
    reader.run_all(found.tasks[task], [part for part in parts if task == "edit" or part[0] == "text"])
    assert reader.states["main"]
    assert not reader.states["cfg_text"]
    assert not reader.states["cfg_img"]
    assert reader.walks[-1] == "image_gen"


def guided(name: str, use: str, asked: Mapping[str, Scalar]) -> list[bool]:
    """True where a branch is called, by step of the guided Walk."""
    found = graph(name)
    defaults = {key: param.default for key, param in found.tasks["text_to_image"].params.items()}
    params = {**{key: value for key, value in defaults.items() if value is not None}, **asked}
    entries = {entry.name: entry for entry in structure(found.walks["image_gen_cfg"]).entries}
    whens = [parse(when) for when in entries[use].whens]
    loops = [{"index": i, "denoise": i} for i in range(int(evaluate(parse("steps - 1"), params)))]
    return [all(evaluate(when, params, loop) is True for when in whens) for loop in loops]


@pytest.mark.parametrize("name", ["shapes", "bagel"])
def test_guidance_works_in_41_of_49_steps(name: str) -> None:
    scales = {"cfg_text_scale": 4.0, "cfg_img_scale": 2.0}
    assert len(guided(name, "llm_cfg_text", scales)) == 49
    assert sum(guided(name, "llm_cfg_text", {**scales, "cfg_interval_low": 0.4})) == 41
    assert sum(guided(name, "llm_cfg_img", {**scales, "cfg_interval_low": 0.0})) == 49
    assert sum(guided(name, "llm_cfg_img", {**scales, "cfg_img_scale": 1.0})) == 0
    assert sum(guided(name, "llm_cfg_img", {**scales, "cfg_text_scale": 1.0})) == 0


@pytest.mark.parametrize("use", ["llm_cfg_text", "llm_cfg_img"])
@pytest.mark.parametrize("name", ["shapes", "bagel"])
@pytest.mark.parametrize(
    ("steps", "shift", "low", "high"), [(8, 4.0, 0.4, 1.0), (8, 2.0, 0.25, 0.75), (50, 3.0, 0.2, 1)]
)
def test_a_step_at_the_intervals_border_is_guided_as_in_float32(
    name: str, use: str, steps: int, shift: float, low: float, high: float
) -> None:
    asked = {"steps": steps, "shift": shift, "cfg_interval_low": low, "cfg_interval_high": high}
    wanted = sampler.inside(sampler.timesteps(steps, shift)[:-1], low, high).tolist()
    assert guided(name, use, {**asked, "cfg_text_scale": 4.0, "cfg_img_scale": 2.0}) == wanted
