"""Shared data of the checks: the readable part of the document, derived facts, the catalogue and the list of
problems."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from walkgraph.graph.blueprints.drafts import FlatDraft
from walkgraph.graph.catalogue import Catalogue, Component, Port
from walkgraph.graph.document import Graph, Task, Use
from walkgraph.graph.language.expressions import Expr, parse
from walkgraph.graph.language.ranges import SEED, Range, infer, range_of
from walkgraph.graph.language.shaping import component_of
from walkgraph.graph.language.syntax import ExpressionError
from walkgraph.graph.ports import PortType, parse_type
from walkgraph.graph.problems import MAX_PROBLEMS, Problem, Severity, listed, nearest
from walkgraph.graph.reading.wellformed import Draft, Path
from walkgraph.graph.steps import StepAt, steps_of
from walkgraph.graph.structure import End, Entry, Route, WalkStructure, structures

LOOP_INDEX = PortType("scalar", "int")
MAX_SEARCHES = 50


class Context:
    def __init__(self, draft: Draft, catalogue: Catalogue) -> None:
        self.draft = FlatDraft(draft)
        self.graph: Graph = self.draft.graph
        """Without blueprints."""
        self.catalogue = catalogue
        self.facts: Mapping[str, WalkStructure] = structures(self.graph)
        self.problems: list[Problem] = list(self.draft.problems)
        self._seen = {(problem.code, problem.pointer) for problem in self.problems}
        self._searches = 0

    def add(self, code: str, path: Path, message: str, severity: Severity = "error") -> None:
        """Add a problem, once for each code and place. `path` is in the graph's normal form."""
        self.add_at(code, self.draft.place(path), message, severity)

    def add_at(self, code: str, place: str, message: str, severity: Severity = "error") -> None:
        """Add a problem at a JSON pointer into the document."""
        if len(self.problems) > MAX_PROBLEMS:
            return
        if (code, place) in self._seen:
            return
        self._seen.add((code, place))
        if len(self.problems) == MAX_PROBLEMS:
            code, place, message = "too_many", "", f"there are more than {MAX_PROBLEMS} problems; fix these first"
        self.problems.append(Problem(code, place, message, severity))

    def nearest(self, name: str, names: Iterable[str]) -> str:
        """Advice after an unknown name: its nearest match, or only the list of names once MAX_SEARCHES is reached, as
        searching is slow."""
        self._searches += 1
        return nearest(name, names) if self._searches <= MAX_SEARCHES else listed(names)

    # ── names ──

    def component(self, node: str) -> Component | None:
        """The component of a node; None where node or component is unknown (the node's own check reports that)."""
        found = self.graph.nodes.get(node)
        return component_of(self.catalogue, found) if found else None

    def output(self, end: End) -> Port | None:
        """The port that a source names; None if anything on the way is unknown."""
        component = self.component(end.entry.node) if end.entry else None
        return component.output(end.port) if component else None

    def input(self, end: End) -> Port | None:
        component = self.component(end.entry.node) if end.entry else None
        return component.input(end.port) if component else None

    def source_type(self, walk: str, route: Route) -> PortType | None:
        """The type that a route takes from its source; None if it can't be known."""
        match route.source.kind:
            case "in":
                return self.input_types.get((walk, route.source.name))
            case "loop":
                return LOOP_INDEX
            case "stream":
                return self.stream_types.get(route.source.name)
            case _:
                port = self.output(route.source)
                return port.type if port else None

    @cached_property
    def sent(self) -> Mapping[str, Mapping[str, PortType | None]]:
        """Walk -> its `@out.x` -> the type sent there, or None if it can't be known."""
        found: dict[str, dict[str, PortType | None]] = {}
        for walk, facts in self.facts.items():
            outs = found.setdefault(walk, {})
            for route in facts.routes:
                if route.target.kind == "out" and outs.get(route.target.name) is None:
                    outs[route.target.name] = self.source_type(walk, route)
        return found

    @cached_property
    def needed(self) -> Mapping[str, frozenset[str]]:
        """Walk -> its inputs that feed a required port."""
        found: dict[str, set[str]] = {walk: set() for walk in self.facts}
        for walk, facts in self.facts.items():
            for route in facts.routes:
                port = self.input(route.target) if route.source.kind == "in" else None
                if port is not None and not port.optional:
                    found[walk].add(route.source.name)
        return {walk: frozenset(names) for walk, names in found.items()}

    @cached_property
    def input_types(self) -> Mapping[tuple[str, str], PortType]:
        """(Walk, input) -> type, for the inputs whose type can be read."""
        found: dict[tuple[str, str], PortType] = {}
        for name, walk in self.graph.walks.items():
            for key, text in walk.inputs.items():
                try:
                    found[name, key] = parse_type(text)
                except ValueError:
                    continue
        return found

    @cached_property
    def stream_types(self) -> Mapping[str, PortType]:
        """Stream -> type of its items, for the streams whose type can be known."""
        found: dict[str, PortType] = {}
        for stream in self.graph.streams:
            ends = (end for walk in stream.walks if walk in self.facts for end in self.facts[walk].ports(stream.from_))
            for output in map(self.output, ends):
                if output:
                    found.setdefault(stream.name, output.type)
        return found

    # ── tasks ──

    @cached_property
    def steps(self) -> Mapping[str, tuple[StepAt, ...]]:
        return {name: steps_of(task) for name, task in self.graph.tasks.items()}

    @cached_property
    def tasks_of(self) -> Mapping[str, tuple[str, ...]]:
        """Walk -> the tasks that use it."""
        found: dict[str, dict[str, None]] = {}
        for task, steps in self.steps.items():
            for at in steps:
                found.setdefault(at.step.walk, {})[task] = None
        return {walk: tuple(tasks) for walk, tasks in found.items()}

    @cached_property
    def uses_of(self) -> Mapping[str, tuple[tuple[str, Entry], ...]]:
        """Node -> the Walks and entries that use it."""
        found: dict[str, list[tuple[str, Entry]]] = {}
        for name, facts in self.facts.items():
            for entry in facts.entries:
                if isinstance(entry.item, Use):
                    found.setdefault(entry.node, []).append((name, entry))
        return {node: tuple(entries) for node, entries in found.items()}

    @cached_property
    def ranges(self) -> Mapping[str, Mapping[str, Range]]:
        """Task -> types and bounds of its parameters, `seed` included."""
        return {name: task_ranges(task) for name, task in self.graph.tasks.items()}

    def knows_params(self, task: str) -> bool:
        """True if all parameters of a task could be read; otherwise a missing one can't be reported."""
        return not self.draft.has_gaps("tasks", task, "params")

    # ── expressions ──

    def expression(self, text: str, path: Path) -> Expr | None:
        """Parse an expression; adds a problem at `path` and returns None if that fails."""
        try:
            return parse(text)
        except ExpressionError as error:
            self.add("bad_expression", path, f"`{text[:80]}`: {error}")
            return None

    def inferred(self, expr: Expr, task: str, path: Path, known: Mapping[str, Range] | None = None) -> Range | None:
        """Type and bounds in one task, by default from its parameters alone; adds a problem at `path` and returns None
        where types clash."""
        try:
            return infer(expr, self.ranges[task] if known is None else known)
        except ExpressionError as error:
            self.add("bad_expression", path, f"`{expr.text[:80]}` in task `{task}`: {error}")
            return None


def task_ranges(task: Task) -> dict[str, Range]:
    return {"seed": SEED} | {name: range_of(param) for name, param in task.params.items()}
