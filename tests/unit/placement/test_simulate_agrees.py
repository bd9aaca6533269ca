"""Simulations of the bundled graphs agree with their documents, read by the book, and with the conductor."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput
from walkgraph.graph import codec
from walkgraph.graph.conversation import MESSAGES, ROLES, Role
from walkgraph.graph.document import FirstStep, Graph, LoopStep, PartsStep, Step, Task, TaskParam, TurnsStep, WalkStep
from walkgraph.graph.language.expressions import evaluate, parse
from walkgraph.graph.structure import structure
from walkgraph.placement import itinerary
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice
from walkgraph.placement.simulate import SimulatedTurn, Simulation, Value, simulate
from walkgraph.placement.tables import Plan
from walkgraph.simulation.reference.reference_walk import run_walk

ONE = Placement(name="one", groups=(Group(nodes=("*",), ranks=(0,)),), ranks=(RankDevice(rank=0, device="cpu"),))
GRAPHS = sorted((Path(__file__).parents[3] / "graphs").glob("*.json"))
T = TypeVar("T")
UNNEEDED = "no output of the task needs it"


class Asked(NamedTuple):
    graph: str
    task: str
    params: dict[str, Any]
    inputs: dict[str, int]
    parts: list[str]
    turns: Sequence[tuple[Role, Sequence[str]]] = ()
    """Turns of a conversation: roles, and modalities of parts."""


class Said(NamedTuple):
    walk: str
    taken: bool
    part: str | None


@cache
def graph_of(name: str) -> Graph:
    return codec.load(next(path for path in GRAPHS if path.stem == name).read_bytes())


@cache
def plan_of(name: str) -> Plan:
    return assemble(Assignment(graph_of(name), ONE), catalogue())


# ── requests ────────────────────────────────────────────────────────────────────────────────────


def value_of(param: TaskParam) -> st.SearchStrategy[Any]:
    """Loops stay short: whole numbers lie within 12 of the least."""
    if param.choices:
        return st.sampled_from(param.choices)
    low = param.min or 0
    match param.type:
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(int(low), int(min(low + 12, param.max if param.max is not None else low + 12)))
        case "number":
            return st.floats(low, param.max if param.max is not None else low + 10)
        case "string":
            return st.text(max_size=5)


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    graph = graph_of(draw(st.sampled_from([path.stem for path in GRAPHS])))
    name = draw(st.sampled_from(sorted(graph.tasks)))
    task = graph.tasks[name]
    # Defaults of whole numbers make long loops.
    params = {
        n: draw(value_of(param))
        for n, param in task.params.items()
        if param.default is None or param.type == "integer" or draw(st.booleans())
    }
    inputs = {
        n: draw(st.integers(0 if declared.optional else 1, 3 if declared.many else 1))
        for n, declared in task.inputs.items()
    }
    many = [declared.modality for declared in task.inputs.values() if declared.many]
    parts = draw(st.lists(st.sampled_from(many), max_size=4)) if many else []
    turn = st.tuples(st.sampled_from(ROLES[:3]), st.lists(st.sampled_from(["text", "image"]), max_size=2))
    talks = any(declared.modality == MESSAGES for declared in task.inputs.values())
    turns = draw(st.lists(turn, min_size=1, max_size=4)) if talks else []
    return Asked(graph.name, name, params, inputs, parts, turns)


# ── by the book ─────────────────────────────────────────────────────────────────────────────────


def walked(task: Task, asked: Asked) -> list[str]:
    """Modalities of what `for parts` goes through: values that no step takes by name."""
    named = {str(binding) for step in steps(list(bodies(task))) for binding in step.with_.values()}
    counts = dict(asked.inputs)
    found = [i.modality for n, i in task.inputs.items() if f"@task.{n}" not in named for _ in range(counts[n])]
    for modality in asked.parts:
        fitting = (n for n, i in task.inputs.items() if i.modality == modality and (i.many or not counts[n]))
        name = next(fitting)
        counts[name] += 1
        if f"@task.{name}" not in named:
            found.append(modality)
    return found


def bodies(task: Task) -> Iterator[Step]:
    for lane in task.steps.values() if isinstance(task.steps, Mapping) else [task.steps]:
        yield from lane


def steps(some: Sequence[Step]) -> Iterator[WalkStep]:
    for step in some:
        if isinstance(step, WalkStep):
            yield step
        elif isinstance(step, FirstStep):
            yield from step.first
        elif isinstance(step, LoopStep):
            yield from steps(step.loop)
        elif isinstance(step, TurnsStep):
            for inside in (step.system, step.user, step.assistant, step.tool):
                yield from steps(inside or ())
        elif isinstance(step, PartsStep):
            for inside in (step.text, step.image, step.audio, step.state, step.actions):
                yield from steps(inside or ())


def run_by_the_book(
    some: Sequence[Step],
    params: Mapping[str, Any],
    parts: Sequence[str],
    turns: Sequence[tuple[Role, Sequence[str]]],
    part: str | None = None,
) -> Iterator[Said]:
    for step in some:
        if isinstance(step, WalkStep):
            yield Said(step.walk, holds(step, params), part)
        elif isinstance(step, FirstStep):
            free = True
            for choice in step.first:
                taken = free and holds(choice, params)
                free = free and not taken
                yield Said(choice.walk, taken, part)
        elif isinstance(step, LoopStep):
            yield from run_by_the_book(step.loop, params, parts, turns, part)
        elif isinstance(step, TurnsStep):
            for role, inside in turns:
                yield from run_by_the_book(getattr(step, role), params, inside, ())
        else:
            for modality in parts:
                yield from run_by_the_book(getattr(step, modality), params, parts, turns, modality)


def holds(step: WalkStep, params: Mapping[str, Any]) -> bool:
    return step.when is None or evaluate(parse(step.when), params) is True


def calls_by_the_book(graph: Graph, walk: str, params: Mapping[str, Any]) -> Counter[str]:
    """Node -> calls, where no loop ends before its time, and every list has as many items as its map takes."""
    found: Counter[str] = Counter()
    lists: dict[str, dict[str, list[int]]] = {}
    for at in structure(graph.walks[walk]).maps:
        for source in (route.source for route in at.routes if route.source.entry is not None):
            items = [0] * int(evaluate(parse(at.item.bound), params))
            lists.setdefault(source.entry.node, {})[source.port] = items

    def counting(node: str) -> Any:
        def call(*_: Any) -> dict[str, Any]:
            found[node] += 1
            return lists.get(node, {})

        return call

    found_walk = graph.walks[walk]
    # No call depends on a value, and those of streams are not known here.
    edges = tuple(edge for edge in found_walk.edges if not edge.from_.startswith("@stream."))
    functions = {node: counting(node) for node in graph.nodes}
    run_walk(found_walk.model_copy(update={"edges": edges}), functions, params, {})
    return found


# ── they agree ──────────────────────────────────────────────────────────────────────────────────


def simulated(asked: Asked) -> Simulation | str:
    """The simulated steps or the refusal; the conductor takes the same steps or refuses with the same message."""
    graph, plan = graph_of(asked.graph), plan_of(asked.graph)
    declared = graph.tasks[asked.task].inputs
    turns = [SimulatedTurn(role, tuple(map(Value, kinds))) for role, kinds in asked.turns]
    chat = SimpleNamespace(turns=turns)
    inputs = {n: [chat if declared[n].modality == MESSAGES else None] * count for n, count in asked.inputs.items()}
    parts = [Value(modality) for modality in asked.parts]

    def real() -> list[str]:
        found = itinerary.expand(graph, plan, asked.task, {"seed": 0, **asked.params}, inputs, parts)
        return [plan.walks[step.walk].name for step in found.steps]

    said = attempt(lambda: simulate(graph, catalogue(), asked.task, asked.params, asked.inputs, asked.parts, turns))
    found = attempt(real)
    if isinstance(said, str) or isinstance(found, str):
        assert said == found
        return said
    taken = [s for lane in said.lanes for s in lane.steps if s.taken]
    # A step of a loop is shown once, with its passes.
    assert Counter(found) == sum((Counter({s.walk: s.passes or 1}) for s in taken), Counter())
    if all(s.passes is None for s in taken):
        assert [s.walk for s in taken] == found
    return said


def attempt(work: Callable[[], T]) -> T | str:
    try:
        return work()
    except InvalidInput as error:
        return f"{error} {error.pointer}"


@settings(max_examples=60)
@given(requests())
def test_a_simulation_agrees_with_the_document_and_the_conductor(asked: Asked) -> None:
    graph = graph_of(asked.graph)
    task = graph.tasks[asked.task]
    said = simulated(asked)
    if isinstance(said, str):
        return
    expected = list(run_by_the_book(list(bodies(task)), said.params, walked(task, asked), asked.turns))
    shown = [step for lane in said.lanes for step in lane.steps]
    assert [
        Said(step.walk, step.taken or step.why == UNNEEDED, step.part.modality if step.part else None) for step in shown
    ] == expected
    for step in shown:
        if step.taken and None not in step.loops.values():
            calls: Counter[str] = Counter()
            for use in step.uses:
                assert use.iterations is not None
                assert use.taken in (use.iterations > 0, None)
                calls[use.node] += use.iterations
            assert +calls == calls_by_the_book(graph, step.walk, said.params)


def test_every_task_is_simulated() -> None:
    """With what a request must have and nothing else."""
    for path in GRAPHS:
        graph = graph_of(path.stem)
        for name, task in graph.tasks.items():
            inputs = {n: 1 for n, declared in task.inputs.items() if not declared.optional}
            required = {n: param.min or 0 for n, param in task.params.items() if param.default is None}
            said = simulated(
                Asked(graph.name, name, required, {**dict.fromkeys(task.inputs, 0), **inputs}, [], [("user", ["text"])])
            )
            assert not isinstance(said, str), (path.stem, name, said)
            assert any(step.taken for lane in said.lanes for step in lane.steps)
