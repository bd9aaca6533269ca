"""A Walk's table interpreted literally, whatever the ranks: the rules of `placement.tables`, one after the other."""

from collections.abc import Mapping
from typing import Any

from walkgraph.graph.language.expressions import evaluate, parse
from walkgraph.placement.tables import EdgePlan, Plan, UsePlan, WalkPlan
from walkgraph.simulation.reference.reference_walk import Function, Out, Vector

_NOTHING = object()


def run_tables(
    plan: Plan, walk: WalkPlan, functions: Mapping[str, Function], params: Mapping[str, Any], inputs: Mapping[str, Any]
) -> tuple[dict[str, list[Out]], dict[str, Any]]:
    """As `reference_walk.run_walk`."""
    run = _Run(plan, walk, functions, params, inputs)
    run.block(-1, ())
    outs: dict[str, list[Out]] = {}
    results: dict[str, Any] = {}
    for edge in walk.edges:
        if edge.target.kind == "out":
            outs.setdefault(edge.target.port, []).extend(run.out(edge))
        if edge.target.kind == "result" and (value := run.left(edge, ())) is not _NOTHING:
            results[edge.target.port] = value
    # The branches of a merge take turns.
    return {name: sorted(found, key=lambda out: out[0]) for name, found in outs.items()}, results


class _Run:
    def __init__(self, plan: Plan, walk: WalkPlan, functions: Any, params: Any, inputs: Any) -> None:
        self.plan, self.walk, self.functions, self.params, self.inputs = plan, walk, functions, params, inputs
        self.calls: dict[int, dict[Vector, Mapping[str, Any]]] = {use.index: {} for use in walk.uses}
        self.dropped: set[tuple[int, Vector]] = set()
        self.taken: dict[int, dict[Vector, int]] = {choice.index: {} for choice in walk.choices}
        """Choice -> iteration -> branch."""
        self.items: dict[int, dict[Vector, int]] = {loop.index: {} for loop in walk.loops if loop.width}
        """Map -> iteration of the loops around it -> the number of its items."""

    def block(self, loop: int, at: Vector) -> None:
        """One iteration of a loop (-1: of the whole body): its uses and inner loops in body order."""
        begun: set[int] = set()
        for use in self.walk.uses:
            path = (-1, *use.loops)
            if loop not in path:
                continue
            inner = path[path.index(loop) + 1 :]
            if any(self.depth(choice) == len(at) and self.taken[choice][at] != branch for choice, branch in use.cases):
                self.calls[use.index][at] = {}
                self.decide(use, at, None)
            elif not inner:
                self.call(use, at)
            elif inner[0] not in begun:
                begun.add(inner[0])
                self.loop(inner[0], at)

    def loop(self, index: int, at: Vector) -> None:
        loop = self.walk.loops[index]
        times = int(evaluate(parse(loop.times), self.params, self.env(index, at)))
        for i in range(self.items[index].get(at, 0) if loop.width else times):
            self.block(index, (*at, i))
            if any(self.calls[use].get((*at, i), {}).get(port) is True for use, port in loop.endings):
                if loop.drop_last:
                    self.dropped.add((index, (*at, i)))
                return

    def env(self, loop: int, at: Vector) -> dict[str, int]:
        """The indices of the loops around a loop, for its `times`."""
        names: list[str] = []
        parent = self.walk.loops[loop].parent
        while parent >= 0:
            names.insert(0, self.walk.loops[parent].name)
            parent = self.walk.loops[parent].parent
        return self.named(names, at)

    def named(self, names: list[str], at: Vector) -> dict[str, int]:
        found = dict(zip(names, at, strict=True))
        return found | {"index": at[-1]} if at else found

    def call(self, use: UsePlan, at: Vector) -> None:
        env = self.named([self.walk.loops[loop].name for loop in use.loops], at)
        if not all(evaluate(parse(when), self.params, env) is True for when in use.when):
            self.calls[use.index][at] = {}
            self.decide(use, at, None)
            return
        ports = dict.fromkeys(e.target.port for e in self.walk.edges if e.target.use == use.index)
        found = {port: self.port(use, port, at) for port in ports}
        given = {port: value for port, value in found.items() if value is not _NOTHING}
        self.decide(use, at, given)
        if use.op in ("choose", "map"):
            return
        self.calls[use.index][at] = self.functions[self.plan.nodes[use.node].name](given, at)

    def depth(self, choice: int) -> int:
        return len(self.walk.uses[self.walk.choices[choice].use].loops)

    def decide(self, use: UsePlan, at: Vector, given: Mapping[str, Any] | None) -> None:
        """The verdict of a choice, or the count of a map; `given` is None where it is skipped."""
        for loop in self.walk.loops:
            if loop.width and loop.head == use.index and given is not None:
                self.items[loop.index][at] = len(given.get("value", ()))
        for choice in self.walk.choices:
            if choice.use == use.index:
                value = (given or {}).get("value")
                named = str(value).lower() if isinstance(value, bool) else str(value)
                known = choice.cases.index(named) if named in choice.cases else len(choice.cases)
                self.taken[choice.index][at] = -1 if given is None else known

    def port(self, use: UsePlan, port: str, at: Vector) -> Any:
        edges = [e for e in self.walk.edges if e.target.use == use.index and e.target.port == port]
        carried = [e for e in edges if e.carried and at[e.common - 1] > 0]
        if carried:
            common = max(edge.common for edge in carried)
            key = (*at[: common - 1], at[common - 1] - 1)
            found = [self.over(edge, use, at, key) for edge in carried if edge.common == common]
        else:
            found = [self.over(edge, use, at, at[: edge.common]) for edge in edges if not edge.carried]
        there = [value for value in found if value is not _NOTHING]
        assert len(there) <= 1
        return there[0] if there else _NOTHING

    def over(self, edge: EdgePlan, use: UsePlan, at: Vector, key: Vector) -> Any:
        if edge.source.kind == "loop":
            assert use.loops[edge.common - 1] == edge.source.index
            return at[edge.common - 1]
        value = self.inputs.get(edge.source.port, _NOTHING) if edge.source.kind == "input" else self.left(edge, key)
        if edge.enter_each and value is not _NOTHING:
            return value[at[edge.sliced]] if at[edge.sliced] < len(value) else _NOTHING
        return value

    def left(self, edge: EdgePlan, key: Vector) -> Any:
        calls = [(at, out) for at, out in self.calls[edge.source.use].items() if at[: len(key)] == key]
        if edge.leave == "collect":
            there = [out[edge.source.port] for at, out in calls if edge.source.port in out and not self.drops(edge, at)]
            left = self.walk.uses[edge.source.use].loops[len(key)]
            return there if there or (edge.gather == "list" and key in self.items.get(left, ())) else _NOTHING
        values = [out.get(edge.source.port, _NOTHING) for _, out in calls]
        assert edge.leave == "last" or len(values) <= 1
        return values[-1] if values else _NOTHING

    def out(self, edge: EdgePlan) -> list[Out]:
        if edge.leave != "each":
            value = self.left(edge, ())
            return [] if value is _NOTHING else [((), value)]
        calls = self.calls[edge.source.use].items()
        return [(at, o[edge.source.port]) for at, o in calls if edge.source.port in o and not self.drops(edge, at)]

    def drops(self, edge: EdgePlan, at: Vector) -> bool:
        loops = self.walk.uses[edge.source.use].loops
        return bool(loops) and (loops[-1], at) in self.dropped
