"""Random tasks whose steps branch, loop and wait for a person, over small Walks of one node each."""

from collections.abc import Iterator, Mapping

from walkgraph.graph.document import (
    ApproveStep,
    ChooseStep,
    Edge,
    FirstStep,
    Graph,
    Literals,
    Loop,
    LoopStep,
    Node,
    Result,
    Step,
    Task,
    TaskInput,
    TaskParam,
    Use,
    Walk,
    WalkStep,
)
from walkgraph.simulation.reference.random_walks import Draw

PORTS = ("a", "b")
_NAMES = ("w0", "w1", "w2", "x", "y")
"""Walks, and other names of steps."""


def random_task(draw: Draw, *, asks: bool = False) -> Graph:
    """A graph whose task `t` has an input `x`, the parameters `n` (1 to 3) and `on`, and outputs `o0` to `o2`. `asks`:
    it has steps that wait for a person."""
    walks = {f"w{i}": _walk(draw, i) for i in range(3)}
    builder = _Builder(draw, asks=asks)
    steps = builder.steps(0, in_loop=False)
    # Every output is sent by some step.
    last = tuple(_step(name, {"a": builder.binding(in_loop=False)}) for name in walks)
    task = Task(
        inputs={"x": TaskInput(modality="scalar")},
        outputs=tuple(f"o{i}" for i in range(3)),
        params={
            "n": TaskParam(type="integer", default=2, min=1, max=3),
            "on": TaskParam(type="boolean", default=True),
        },
        steps=(_step("w0", {"a": "@task.x"}), *steps, *last),
    )
    kinds = ["test.mix"] * 3 + ["test.host"]
    nodes = {f"n{i}": Node(component=draw.one(kinds)) for i in range(3)}
    return Graph(name="tasks", nodes=nodes, walks=walks, tasks={"t": task})


def _walk(draw: Draw, number: int) -> Walk:
    node = f"n{number}"
    loop = Loop(loop="l", times=draw.one(["2", "n"]), body=(Use(use=node),))
    edges = [Edge.model_validate({"from": f"@in.{port}", "to": f"{node}.{port}"}) for port in PORTS]
    body = (loop,) if draw.flag() else (Use(use=node),)
    each = draw.flag() and body == (loop,)
    edges.append(Edge.model_validate({"from": f"{node}.out", "to": f"@out.o{number}", "each": each}))
    results = {port: Result.model_validate({"from": f"{node}.{port}"}) for port in ("out", "stop", "maybe")}
    return Walk(inputs=dict.fromkeys(PORTS, "scalar"), body=body, edges=tuple(edges), results=results)


def _step(walk: str, bound: Mapping[str, Literals], name: str | None = None, when: str | None = None) -> WalkStep:
    return WalkStep.model_validate({"walk": walk, "as": name, "with": dict(bound), "when": when})


class _Builder:
    def __init__(self, draw: Draw, *, asks: bool) -> None:
        self.draw, self.asks = draw, asks
        self.left = 10
        """The number of steps that may still be made."""
        self.loops = 0
        """The number of loops that have a name."""

    def steps(self, depth: int, *, in_loop: bool) -> tuple[Step, ...]:
        return tuple(self.step(depth, in_loop=in_loop) for _ in range(self.draw.integer(1, 3)))

    def step(self, depth: int, *, in_loop: bool) -> Step:
        self.left -= 1
        kinds = ["walk"] * 2 + (["first", "choose", "loop", "loop"] if depth < 3 and self.left > 0 else [])
        match self.draw.one([*kinds, *(["approve"] * 2 if self.asks else [])]):
            case "approve":
                return self.approve()
            case "first":
                return FirstStep(first=tuple(self.walk(in_loop=in_loop) for _ in range(self.draw.integer(1, 2))))
            case "choose":
                cases = {"true": self.steps(depth + 1, in_loop=in_loop)}
                otherwise = self.steps(depth + 1, in_loop=in_loop) if self.draw.flag() else ()
                return ChooseStep(choose=self.flag(), cases=cases, otherwise=otherwise)
            case "loop":
                return self.loop(depth)
            case _:
                return self.walk(in_loop=in_loop)

    def approve(self) -> ApproveStep:
        shown = tuple(
            f"{self.draw.one(_NAMES)}.{self.draw.one(['out', 'maybe'])}" for _ in range(self.draw.integer(1, 2))
        )
        return ApproveStep.model_validate({"approve": shown, "as": self.draw.one([None, "said", "said", "more"])})

    def flag(self) -> str:
        said = ["said.approved", "more.approved"] if self.asks else []
        return self.draw.one([*(f"{name}.stop" for name in _NAMES), *said])

    def loop(self, depth: int) -> LoopStep:
        body = self.steps(depth + 1, in_loop=True)
        owners = [*dict.fromkeys(_owners(body))]
        until = f"{self.draw.one(owners)}.stop" if owners and self.draw.integer(0, 3) else None
        said = [step.as_ for step in body if isinstance(step, ApproveStep) and step.as_ is not None]
        until = f"{self.draw.one(said)}.approved" if said and self.draw.flag() else until
        start: dict[str, Literals] = {}
        if owners and self.draw.flag():
            start[f"{self.draw.one(owners)}.out"] = self.binding(in_loop=False)
        if said and self.draw.flag():
            start[f"{self.draw.one(said)}.note"] = self.binding(in_loop=False)
        name = None
        if self.draw.flag():
            self.loops, name = self.loops + 1, f"loop{self.loops}"
        times = self.draw.one(["1", "2", "3", "n"])
        return LoopStep.model_validate({"loop": body, "times": times, "until": until, "start": start, "as": name})

    def walk(self, *, in_loop: bool) -> WalkStep:
        ports = PORTS[: self.draw.integer(1, 2)]
        whens = [None, None, None, "n > 1", "not on"] + (["@loop.index > 0", "@loop.index % 2 == 0"] if in_loop else [])
        bound = {port: self.binding(in_loop=in_loop) for port in ports}
        name = self.draw.one([None, None, "x", "y"])
        return _step(f"w{self.draw.integer(0, 2)}", bound, name, self.draw.one(whens))

    def binding(self, *, in_loop: bool) -> Literals:
        result = f"{self.draw.one(_NAMES)}.{self.draw.one(['out', 'out', 'maybe'])}"
        said = ["said.note", "more.note"] if self.asks else []
        return self.draw.one([result, result, result, "@task.x", 7, *(["@loop.index"] if in_loop else []), *said])


def _owners(body: tuple[Step, ...]) -> Iterator[str]:
    """Names of the steps of a body that run in each pass."""
    for step in body:
        if isinstance(step, WalkStep) and step.when is None:
            yield step.walk
            if step.as_ is not None:
                yield step.as_
