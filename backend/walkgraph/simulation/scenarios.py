"""Scenarios of simulated worlds: graphs with their plans, and requests with the outputs that they must have."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from walkgraph.components import catalogue
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.ids import Rank
from walkgraph.placement.compiler.assemble import assemble
from walkgraph.placement.compiler.assignment import Assignment
from walkgraph.placement.document import Group, Placement, RankDevice, decode
from walkgraph.placement.tables import BOUND, STOP, Decision, Plan
from walkgraph.resources import bundled
from walkgraph.simulation.rank.device import Serve
from walkgraph.simulation.rank.engine import Functions
from walkgraph.simulation.reference.naive_chunks import naive_chunks
from walkgraph.simulation.reference.random_tasks import random_task
from walkgraph.simulation.reference.random_walks import (
    CATALOGUE,
    PARAMS,
    REASONS,
    RESIDENT,
    SeededDraw,
    followed_graph,
    mix,
    plain,
    random_graph,
)
from walkgraph.simulation.reference.reference_task import Told, run_task
from walkgraph.simulation.reference.reference_walk import Function, run_walk
from walkgraph.simulation.reference.synthetic import twins
from walkgraph.wire import messages as m
from walkgraph.worker.io import values
from walkgraph.worker.plan_variants import Variants

PAGES = 12
"""Pages per rank: fewer than a few runs need together."""
WALKS = 24
"""Random Walks per kind."""
TASKS = 24
"""Random tasks per kind."""


@dataclass(frozen=True)
class ScenarioRequest:
    """A request with its expected outputs."""

    task: str
    params: Mapping[str, Any]
    outputs: Mapping[str, Sequence[Any]]
    """All values of each output, in order."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fails: bool = False
    """One of its nodes fails, so that only some outputs come."""
    fault: tuple[str, str] | None = None
    """(error code, node) with which it must end then, unless something else ends it; None if any may do."""
    session: bool = False
    """It is sent in a session of its own."""
    asked: Sequence[Mapping[str, Any]] = ()
    """The values that a person is shown at each approval."""
    ends: Mapping[str, tuple[int, str]] | None = None
    """Loop of steps -> (passes, why it ended); None if that is not compared."""
    following: "ScenarioRequest | None" = None
    """A request that may follow in the same session."""

    @cached_property
    def packed(self) -> dict[str, tuple[m.Value, ...]]:
        return {name: (values.pack(value),) for name, value in self.inputs.items()}


@dataclass(frozen=True)
class Scenario:
    name: str
    graph: Graph
    plan: Plan
    functions: Functions
    requests: Sequence[ScenarioRequest]
    pages: int = PAGES

    @cached_property
    def variants(self) -> Mapping[Rank, Variants]:
        """Plan variants by rank. Made once, since they hold nothing of a run."""
        return {rank.rank: Variants(self.plan, rank.rank) for rank in self.plan.ranks}

    @cached_property
    def fused_variants(self) -> Mapping[Rank, Variants]:
        """Scenarios in which chains of small nodes are one call."""
        return {rank.rank: Variants(self.plan, rank.rank, fused=True) for rank in self.plan.ranks}

    @cached_property
    def itineraries(self) -> ItineraryCache:
        """Made once too: what it keeps depends on nothing but the graph, the plan and what is requested."""
        return ItineraryCache(self.graph, self.plan)

    @cached_property
    def document(self) -> dict[str, Any]:
        return codec.dump(self.graph)

    @property
    def converses(self) -> bool:
        """Its requests may be sent in sessions."""
        return any(one.session for one in self.requests)

    @property
    def paged(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.plan.states if state.kind == "paged_kv")


# ── bundled graphs ──────────────────────────────────────────────────────────────────────────────


def bundled_scenarios() -> list[Scenario]:
    makers: Mapping[str, Callable[[], list[ScenarioRequest]]] = {
        "synthetic_loops": _loops,
        "synthetic_streams": _streams,
        "synthetic_states": _states,
        "synthetic_passes": _passes,
        "synthetic_maps": _maps,
        "synthetic_faults": _faults,
    }
    found: list[Scenario] = []
    for name, requests in makers.items():
        graph = codec.load(bundled("graphs")[name].read_bytes())
        two = decode(json.loads(bundled("placements")[f"{name}_two_ranks"].read_text()))
        for ranks, placement in ((1, placed({}, 1)), (2, two), (3, placed(apart(graph), 3))):
            plan = assemble(Assignment(graph, placement), catalogue())
            found.append(Scenario(f"{name}/{ranks}", graph, plan, _twins(graph), requests()))
    return found


def _twins(graph: Graph) -> Functions:
    return lambda states: twins(graph, states)


def apart(graph: Graph) -> dict[str, int]:
    """Places nodes on three ranks in turn; nodes that share a state go to one rank."""
    ranks: dict[str, int] = {}
    of_state: dict[str, int] = {}
    for number, (name, node) in enumerate(graph.nodes.items()):
        state = next(iter(node.states.values()), None)
        ranks[name] = number % 3 if state is None else of_state.setdefault(state, number % 3)
    return ranks


def placed(nodes: Mapping[str, int], ranks: int) -> Placement:
    groups = tuple(Group(nodes=(node,), ranks=(rank,)) for node, rank in nodes.items())
    devices = tuple(RankDevice(rank=rank, device="cpu") for rank in range(ranks))
    return Placement(name="simulated", groups=(Group(nodes=("*",), ranks=(0,)), *groups), ranks=devices)


def _loops() -> list[ScenarioRequest]:
    def nested(rows: int, columns: int, start: int) -> ScenarioRequest:
        found: list[int] = []
        value = last = 0
        for row in range(rows):
            value += start + row
            grown = [value := value + i for i in range(columns)]
            last = value
            found.append(value := sum(grown))
        outputs = {"row": found, "last": [last], "total": [sum(found)]}
        return ScenarioRequest("nested", {"rows": rows, "columns": columns, "start": start}, outputs)

    def climb(start: int, limit: int, passes: int) -> ScenarioRequest:
        params = {"start": start, "limit": limit, "passes": passes}
        return ScenarioRequest("climb", params, {"value": [*range(start + 1, limit)], "passes": [passes]})

    def skip(times: int) -> ScenarioRequest:
        total = 0
        for index in range(times):
            total += 1 if index % 2 == 0 else 0
        return ScenarioRequest("skip", {"times": times}, {"sum": [total]})

    count = ScenarioRequest("count", {"stop_at": 4}, {"token": [1, 2, 3, 4]})
    return [nested(3, 2, 10), nested(2, 3, 1), climb(0, 4, 2), climb(2, 5, 3), skip(5), count]


def _streams() -> list[ScenarioRequest]:
    def batches(values_: Sequence[float]) -> list[float]:
        return _sums("fixed", {"size": 3}, values_)

    def windows(values_: Sequence[float]) -> list[float]:
        return _sums("sliding", {"window": 4, "stride": 2}, values_)

    def contexts(values_: Sequence[float]) -> list[float]:
        return _sums("left_context", {"chunk": 3, "context": 2, "first": 1}, values_)

    found: list[ScenarioRequest] = []
    for items, stop in ((7, 99), (6, 99), (9, 4), (8, 0)):
        given = [float(item) for item in range(min(items, stop))]
        params = {"items": items, "stop_at": stop}
        each = {"batches": batches(given), "windows": windows(given), "contexts": contexts(given)}
        each["whole"] = [sum(given)]
        found += [ScenarioRequest(name, params, {name: each[name]}) for name in each]
        found.append(ScenarioRequest("all", params, each))
        found.append(ScenarioRequest("chain", params, {"windows": each["windows"], "chain": [sum(each["windows"])]}))
        padding = [0.0] * (items + 2 - len(given))
        found.append(ScenarioRequest("padded", params | {"extra": 2}, {"padded": [*given, *padding]}))
    return found


def _sums(policy: str, settings: Mapping[str, int], items: Sequence[float]) -> list[float]:
    return [float(sum(chunk.values)) for chunk in naive_chunks(policy, settings, items)]


def _states() -> list[ScenarioRequest]:
    def write(prompt: int, first: int, times: int) -> ScenarioRequest:
        read = [*range(first, first + prompt)]
        token = (sum(read) + prompt) % 997
        params = {"prompt": prompt, "first": first, "times": times}
        return ScenarioRequest("write", params, {"token": _grown([*read, token], prompt, times)})

    def part_ways(prompt: int, first: int, times: int) -> ScenarioRequest:
        read = [*range(first, first + prompt)]
        token = (sum(read) + prompt) % 997
        aside = [*read, first, first + 1, first + 2]
        begun = (sum(aside) + prompt + 1) % 997
        copy = _grown([*aside, begun], prompt + 1, times)
        params = {"prompt": prompt, "first": first, "times": times}
        return ScenarioRequest("part_ways", params, {"main": _grown([*read, token], prompt, times), "copy": copy})

    def peek(prompt: int, first: int) -> ScenarioRequest:
        read = [*range(first, first + prompt)]
        look = (2 * sum(read) + prompt) % 997
        return ScenarioRequest("peek", {"prompt": prompt, "first": first}, {"once": [look], "again": [look]})

    def remember(prompt: int, first: int, kept: Sequence[int] = (), times: int = 3) -> ScenarioRequest:
        tokens = [*kept, *range(first, first + prompt)]
        token = (sum(tokens) + len(tokens)) % 997
        params = {"prompt": prompt, "first": first, "room": 2 * prompt}
        following = remember(prompt, first + 1, tokens, times - 1) if times > 1 and 2 * prompt > len(tokens) else None
        return ScenarioRequest("remember", params, {"token": [token]}, session=True, following=following)

    asked = [write(4, 1, 6), write(16, 3, 12), write(10, 2, 3), part_ways(4, 1, 4), part_ways(9, 5, 6)]
    return [*asked, peek(5, 2), remember(6, 1), remember(20, 3)]


def _grown(tokens: Sequence[int], position: int, times: int) -> list[int]:
    """The tokens that `times` further steps write, one per step."""
    kept, found = [*tokens], list[int]()
    for _ in range(times):
        position += 1
        found.append((sum(kept) + position) % 997)
        kept.append(found[-1])
    return found


def _maps() -> list[ScenarioRequest]:
    def write(items: int, width: int, prompt: int, times: int, fail_at: int = -1) -> ScenarioRequest:
        params = {"items": items, "width": width, "prompt": prompt, "times": times, "fail_at": fail_at}
        found: list[int] = []
        for first in range(items if fail_at < 0 else fail_at):
            read = [*range(first, first + prompt)]
            token = (sum(read) + prompt) % 997
            found += _grown([*read, token], prompt, times)
        return ScenarioRequest("write", params, {"token": found}, fails=fail_at >= 0)

    def add(items: int, parts: int, width: int) -> ScenarioRequest:
        rows = [sum(row + column + row for column in range(parts)) for row in range(items)]
        params = {"items": items, "parts": parts, "width": width}
        return ScenarioRequest("add", params, {"row": rows, "total": [sum(rows)]})

    asked = [write(5, 2, 4, 4), write(3, 1, 2, 3), write(4, 9, 3, 2), write(6, 2, 4, 2, fail_at=3)]
    return [*asked, add(3, 2, 2), add(4, 3, 1), add(2, 5, 3)]


def _passes() -> list[ScenarioRequest]:
    def redraw(idea: int, most: int, enough: int) -> ScenarioRequest:
        params, drawn = {"idea": idea, "most": most, "enough": enough}, list[int]()
        for number in range(most):
            drawn.append(idea + number)
            idea = 2 * drawn[-1]
            if idea >= enough:
                break
        ends = {"look": (len(drawn), STOP if idea >= enough else BOUND)}
        return ScenarioRequest("redraw", params, {"picture": drawn, "idea": [idea]}, ends=ends)

    def ramble(prompt: int, first: int, passes: int, times: int) -> ScenarioRequest:
        read = [*range(first, first + prompt)]
        token = (sum(read) + prompt) % 997
        params = {"prompt": prompt, "first": first, "passes": passes, "times": times}
        return ScenarioRequest("ramble", params, {"token": _grown([*read, token], prompt, passes * times)})

    def recite(prompt: int, passes: int, kept: Sequence[int] = (), times: int = 3) -> ScenarioRequest:
        tokens, said = [*kept], list[int]()
        for number in range(passes):
            tokens += range(number, number + prompt)
            said.append((sum(tokens) + len(tokens)) % 997)
        params = {"prompt": prompt, "passes": passes, "room": 3 * passes * prompt}
        following = recite(prompt, passes, tokens, times - 1) if times > 1 else None
        return ScenarioRequest("recite", params, {"token": said}, session=True, following=following)

    asked = [redraw(1, 3, 1000), redraw(5, 9, 40), redraw(0, 1, 0), ramble(4, 1, 3, 4), ramble(9, 2, 3, 10)]
    return [*asked, recite(3, 2), recite(5, 3)]


def _faults() -> list[ScenarioRequest]:
    good = ScenarioRequest("fail", {"times": 5}, {"value": [*range(5)]})
    return [
        good,
        *(ScenarioRequest("fail", {"times": 5, "at": at}, {"value": [*range(at)]}, fails=True) for at in (0, 2, 4)),
    ]


# ── random Walks ────────────────────────────────────────────────────────────────────────────────


def random_scenarios(count: int = WALKS) -> list[Scenario]:
    """`count` of each kind: stepped, with device loops, and with device loops that host nodes follow."""
    found: list[Scenario] = []
    for seed in range(count):
        found.append(_random(f"walk {seed}", random_graph(SeededDraw(seed)), seed, CATALOGUE))
        found.append(_random(f"resident walk {seed}", random_graph(SeededDraw(seed)), seed, RESIDENT))
        found.append(_random(f"followed walk {seed}", followed_graph(SeededDraw(seed)), seed, RESIDENT))
    return found


def ferries() -> Scenario:
    """A loop over two ranks that send values to each other through their arenas."""
    body = [{"loop": "l", "times": "4", "body": ["a", "b"]}]
    edges = [["@in.x", "a.a"], ["a.many", "b.a"], ["b.many", "a.b"], {"from": "b.out", "to": "@out.o", "each": True}]
    nodes = {"a": {"component": "test.mix"}, "b": {"component": "test.mix"}}
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}, "body": body, "edges": edges}
    graph = codec.load({"format": "walkgraph/graph@1", "name": "ferries", "nodes": nodes, "walks": {"w": walk}})
    return _of_walk("ferries", graph, placed({"a": 0, "b": 1}, 2), CATALOGUE)


def relay() -> Scenario:
    """Two steps on two ranks that send one output, which must arrive in the order of the steps."""
    walk = {"inputs": {"x": "scalar", "xs": "tensor"}}
    nodes = {"a": {"component": "test.mix"}, "b": {"component": "test.mix"}}
    walks = {
        node: walk | {"body": [node], "edges": [["@in.x", f"{node}.a"], [f"{node}.out", "@out.o"]]} for node in "ab"
    }
    steps = [{"walk": node, "with": {"x": "@task.x", "xs": "@task.xs"}} for node in "ab"]
    task = _task(["o"]) | {"steps": steps}
    graph = codec.load(
        {"format": "walkgraph/graph@1", "name": "relay", "nodes": nodes, "walks": walks, "tasks": {"t": task}}
    )
    plan = assemble(Assignment(graph, placed({"a": 0, "b": 1}, 2)), CATALOGUE)
    mixed = {node: mix(node) for node in "ab"}
    inputs = {"x": 5, "xs": [7, 8]}
    wanted = [run_walk(graph.walks[node], mixed, PARAMS, inputs)[0]["o"][0][1] for node in "ab"]
    return Scenario("relay", graph, plan, fixed(mixed), [ScenarioRequest("t", {}, {"o": wanted}, inputs)])


def _random(name: str, graph: Graph, seed: int, components: Catalogue) -> Scenario:
    draw, ranks = SeededDraw(seed), 1 + seed % 3
    split = {node: draw.integer(0, ranks - 1) for node in graph.nodes}
    if components is RESIDENT:  # on one rank, so that its loops can be device loops
        core = draw.integer(0, ranks - 1)
        split |= {node: core for node, made in graph.nodes.items() if made.component == "test.mix"}
    return _of_walk(f"{name}/{ranks}", graph, placed(split, ranks), components)


def _of_walk(name: str, graph: Graph, placement: Placement, components: Catalogue) -> Scenario:
    """The scenario of a graph whose only Walk is `w`."""
    walk = graph.walks["w"]
    outputs = sorted({edge.to.removeprefix("@out.") for edge in walk.edges if edge.to.startswith("@out.")})
    graph = codec.load(codec.dump(graph) | {"tasks": {"t": _task(outputs)}})
    plan = assemble(Assignment(graph, placement), components)
    mixed = {node: mix(node) for node in graph.nodes}
    requests: list[ScenarioRequest] = []
    for n in (1, 2, 3):
        params, inputs = PARAMS | {"n": n}, {"x": 5 + n, "xs": [7, 8]}
        outs, _ = run_walk(walk, mixed, params, inputs)
        wanted = {output: [plain(value) for _, value in given] for output, given in outs.items() if given}
        requests.append(ScenarioRequest("t", {"n": n}, wanted, inputs))
    return Scenario(name, graph, plan, fixed(mixed), requests)


def _task(outputs: Sequence[str]) -> dict[str, Any]:
    return {
        "inputs": {"x": {"modality": "scalar"}, "xs": {"modality": "tensor"}},
        "outputs": outputs,
        "params": {
            "n": {"type": "integer", "default": 2},
            "on": {"type": "boolean", "default": True},
            "off": {"type": "boolean", "default": False},
        },
        "steps": [{"walk": "w", "with": {"x": "@task.x", "xs": "@task.xs"}}],
    }


def fixed(functions: Mapping[str, Function]) -> Functions:
    """`Functions` without states."""

    def serving(function: Function) -> Serve:
        return lambda call: dict(function(call.inputs, call.iteration))

    served = {node: serving(function) for node, function in functions.items()}
    return lambda states: served


# ── random tasks ────────────────────────────────────────────────────────────────────────────────


def random_tasks(count: int = TASKS) -> list[Scenario]:
    """Tasks whose steps branch and loop, stepped and with device loops, on one to three ranks."""
    return [task_scenario(seed, components) for seed in range(count) for components in (CATALOGUE, RESIDENT)]


def task_scenario(seed: int, components: Catalogue, *, asks: bool = False) -> Scenario:
    """`asks`: with steps that wait for a person, who answers as `decided` says."""
    draw = SeededDraw(seed)
    graph, ranks = random_task(draw, asks=asks), 1 + seed % 3
    placement = placed({node: draw.integer(0, ranks - 1) for node in graph.nodes}, ranks)
    plan = assemble(Assignment(graph, placement), components)
    mixed = {node: mix(node) for node in graph.nodes}
    requests: list[ScenarioRequest] = []
    for n, on in ((1, True), (2, False), (3, True)):
        params, inputs = {"n": n, "on": on}, {"x": 5 + n}
        told = Told()
        found = run_task(graph, "t", mixed, params, inputs, decided, told, REASONS)
        wanted = {name: [plain(value) for value in values] for name, values in found.items()}
        requests.append(ScenarioRequest("t", params, wanted, inputs, asked=told.asked, ends=told.ends))
    name = f"asking task {seed}" if asks else f"task {seed}"
    return Scenario(f"{name}/{ranks}", graph, plan, fixed(mixed), requests)


def asking_tasks(count: int = TASKS) -> list[Scenario]:
    """Tasks that wait for a person too."""
    return [task_scenario(seed, components, asks=True) for seed in range(count) for components in (CATALOGUE, RESIDENT)]


def decided(number: int) -> Decision:
    """The decision of the person in scenarios on the approval of this number in a run."""
    return Decision(approved=number % 4 != 1, note=f"note {number}")


def scenarios() -> list[Scenario]:
    return [*bundled_scenarios(), ferries(), relay(), *random_scenarios(), *random_tasks(), *asking_tasks()]
