"""Random graphs of small components, typed so that `check` accepts them, and what plain Python makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.palette_twins import WrongInput, expected
from walkgraph.graph import codec
from walkgraph.graph.document import Graph
from walkgraph.simulation.reference.random_walks import Draw

INPUTS = {"text": "text", "other": "text", "texts": "list of text", "n": "scalar: int", "flag": "flag"}
"""Inputs of the Walk, by their types.

A kind of values is their type, in short: a `number` is a whole scalar, `ints` are a tensor of them, and a `json` text
is an object with the text `a`, the number `n` and the list `list`."""


@dataclass(frozen=True)
class Rule:
    """A component that a graph may use."""

    component: str
    takes: Mapping[str, str] = field(default_factory=dict[str, str])
    """Port -> kind of the value."""
    gives: Mapping[str, str] = field(default_factory=dict[str, str])
    params: Callable[[Draw], dict[str, Any]] = lambda _: {}
    optional: Sequence[str] = ()
    """Ports that may stay without an edge, or get a value that is absent at times."""
    absent: Sequence[str] = ()
    """Outputs that are absent at times."""


def _one(**params: Sequence[Any]) -> Callable[[Draw], dict[str, Any]]:
    return lambda draw: {name: draw.one(values) for name, values in params.items()}


_TEXT = {"text": "text"}
_PIXELS = {"pixels": "pixels"}
RULES: tuple[Rule, ...] = (
    Rule(
        "text.template",
        {"a": "text", "n": "number", "f": "flag", "b": "text"},
        _TEXT,
        _one(template=["{a}-{n: scalar}, {f: flag}{b?}", "{{{a}}}{b?}{n: scalar} {f: flag}"]),
        optional=["b"],
    ),
    Rule("text.join", {"texts": "list of text"}, _TEXT, _one(separator=["", ", "])),
    Rule("text.split", _TEXT, {"texts": "list of text"}, _one(separator=["", ",", "a"], keep_empty=[True, False])),
    Rule(
        "text.extract",
        _TEXT,
        {"texts": "list of text", "found": "flag", "text": "text"},
        _one(pattern=[r"a+", r"\d", r"[a-b]*1"]),
        absent=["text"],
    ),
    Rule("text.replace", _TEXT, _TEXT, _one(find=["a", "b,"], replacement=["", "1b"], regex=[True, False])),
    Rule("text.trim", _TEXT, _TEXT, _one(sides=["both", "start", "end"], characters=["", "a"], longest=[0, 20])),
    Rule(
        "text.similarity",
        {"a": "text", "b": "text"},
        {"similarity": "number"},
        _one(letters=[1, 3], ignore_case=[True, False]),
    ),
    Rule(
        "json.build",
        {"a": "text", "n": "number", "list": "list of text"},
        {"text": "json"},
        _one(ports=["a, n: scalar, list: list of text"]),
    ),
    Rule("json.read", {"text": "json"}, {"text": "json"}, _one(search=[True, False])),
    Rule("json.read", _TEXT, _TEXT, _one(search=[True])),
    Rule("json.pick", {"text": "json"}, {"value": "text"}, _one(path=["a", "n", "list", ""], type=["text"])),
    Rule("json.pick", {"text": "json"}, {"value": "number"}, _one(path=["n"], type=["scalar"])),
    Rule("json.pick", {"text": "json"}, {"value": "list of text"}, _one(path=["list"], type=["list of text"])),
    Rule(
        "json.pick",
        {"text": "json"},
        {"value": "text"},
        _one(path=["list[0]", "list[-1]", "b"], type=["text"], missing=["absent"]),
        absent=["value"],
    ),
    Rule("numbers.value", {}, {"value": "number"}, _one(value=[3, -2])),
    Rule(
        "numbers.arithmetic",
        {"a": "number", "b": "number"},
        {"result": "number"},
        _one(operation=["add", "subtract", "minimum", "maximum", "floor_divide", "remainder"], number=[2, 5]),
        optional=["b"],
    ),
    Rule(
        "numbers.arithmetic",
        {"a": "ints", "b": "number"},
        {"result": "ints"},
        _one(operation=["add", "subtract", "minimum"], type=["tensor"]),
    ),
    Rule(
        "numbers.compare",
        {"a": "number", "b": "number"},
        {"flag": "flag"},
        _one(comparison=["less", "equal", "at_least"], number=[1]),
        optional=["b"],
    ),
    Rule("numbers.cast", {"value": "number"}, {"value": "text"}, _one(to=["text"])),
    Rule("numbers.cast", {"value": "number"}, {"value": "flag"}, _one(to=["flag"])),
    Rule("numbers.cast", {"value": "flag"}, {"value": "number"}, _one(type=["flag"], to=["scalar: int"])),
    Rule("numbers.statistics", {"values": "ints"}, {"min": "number", "max": "number", "histogram": "ints"}),
    Rule("numbers.shape", {"value": "ints"}, {"sizes": "ints", "size": "number", "count": "number"}),
    Rule("numbers.select", {"values": "ints"}, {"value": "number"}, _one(index=[0, -1, 1], to=["scalar"])),
    Rule(
        "numbers.stack",
        {"a": "number", "b": "number"},
        {"values": "ints"},
        _one(ports=["a: scalar, b: scalar"], type=["tensor"]),
    ),
    Rule(
        "numbers.stack",
        {"a": "ints", "b": "ints"},
        {"values": "ints"},
        _one(ports=["a: tensor, b: tensor"], how=["concat"], type=["tensor"]),
    ),
    Rule("numbers.reshape", {"value": "ints"}, {"value": "ints"}, _one(shape=["-1", "2, -1"])),
    Rule(
        "numbers.unstack",
        {"values": "ints"},
        {"items": "list of number"},
        _one(to=["scalar"]),
    ),
    Rule("control.gate", {"value": "text", "flag": "flag"}, {"value": "text"}, absent=["value"]),
    Rule(
        "control.gate",
        {"value": "number", "flag": "flag"},
        {"value": "number"},
        _one(type=["scalar"]),
        absent=["value"],
    ),
    Rule("control.select", {"flag": "flag", "if_true": "text", "if_false": "text"}, {"value": "text"}),
    Rule(
        "control.select",
        {"flag": "flag", "if_true": "ints", "if_false": "ints"},
        {"value": "ints"},
        _one(type=["tensor"]),
    ),
    Rule(
        "control.collect",
        {"a": "text", "b": "text"},
        {"items": "list of text"},
        _one(ports=["b, a"]),
        optional=["a", "b"],
    ),
    Rule("control.item", {"items": "list of text"}, {"item": "text"}, _one(index=[0, -1, 2])),
    Rule("control.item", {"items": "list of number"}, {"item": "number"}, _one(type=["scalar"], index=[0, 1])),
    Rule("control.count", {"items": "list of text"}, {"count": "number"}),
    Rule("control.fail", {"value": "text", "flag": "flag"}, {"value": "text"}, absent=["value"]),
    Rule(
        "numbers.constant",
        {},
        {"value": "pixels"},
        _one(type=["pixels: float[3, 2, 3]"], value=[str([[[0.25, -1, 1], [0, 0.5, i / 4]] for i in range(3)])]),
    ),
    Rule("picture.flip", _PIXELS, _PIXELS, _one(direction=["horizontal", "vertical"])),
    Rule("picture.crop", _PIXELS, _PIXELS, _one(left=[0, 1], top=[0, 1], width=[0, 2], height=[0, 1])),
    Rule("picture.pad", _PIXELS, _PIXELS, _one(left=[0, 2], top=[1], right=[0, 1], bottom=[0, 3])),
    Rule(
        "numbers.constant", {}, {"value": "waveform"}, _one(type=["waveform: float[3]"], value=["[0.5, -0.25, 0.125]"])
    ),
    Rule("sound.gain", {"waveform": "waveform"}, {"waveform": "waveform"}, _one(gain=[-20.0, 20.0])),
)


@dataclass(frozen=True)
class Source:
    end: str
    """`use.port` or `@in.x`."""
    kind: str
    absent: bool = False
    how: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """`collect` of the edge, if it leaves a map."""


@dataclass
class Pipeline:
    """A graph of one Walk `w` and one task `t`, and how plain Python goes through it."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    body: list[Any] = field(default_factory=list[Any])
    edges: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    repeats: dict[str, tuple[str, Any]] = field(default_factory=dict[str, "tuple[str, Any]"])
    """Node -> (`map`, the list that it goes through) or (`loop`, times)."""
    outputs: list[str] = field(default_factory=list[str])
    """`use.port` of each `@out.oI`."""

    def graph(self) -> Graph:
        inputs = {
            name: {"modality": kind.removeprefix("list of ").split(":")[0], "many": kind.startswith("list")}
            for name, kind in INPUTS.items()
            if name not in ("n", "flag")
        }
        task = {
            "inputs": {name: one if one["many"] else {"modality": one["modality"]} for name, one in inputs.items()},
            "params": {
                "n": {"type": "integer", "default": 0, "min": -9, "max": 9},
                "flag": {"type": "boolean", "default": True},
            },
            "outputs": [f"o{i}" for i in range(len(self.outputs))],
            "steps": [{"walk": "w", "with": {name: f"@task.{name}" for name in INPUTS}}],
        }
        walk = {"inputs": dict(INPUTS), "body": self.body, "edges": self.edges}
        return codec.load(
            {
                "format": "walkgraph/graph@1",
                "name": "g",
                "nodes": self.nodes,
                "walks": {"w": walk},
                "tasks": {"t": task},
            }
        )

    # ── by plain Python ──

    def run(self, inputs: Mapping[str, Any]) -> tuple[dict[str, Any], set[str]]:
        """Values of outputs that have one, and the nodes that end the run; nodes after these have no values."""
        values: dict[str, Any] = {f"@in.{name}": value for name, value in inputs.items()}
        failed: set[str] = set()
        lost: set[str] = set()
        for name in self.nodes:
            mine = [edge for edge in self.edges if edge["to"].startswith(f"{name}.")]
            if any(edge["from"].split(".")[0] in failed | lost for edge in mine):
                lost.add(name)
                continue
            given = {
                edge["to"].partition(".")[2]: values[edge["from"]]
                for edge in mine
                if edge["from"] in values and edge["from"].split(".")[0] != name
            }
            try:
                made = self._node(name, given)
            except WrongInput:
                failed.add(name)
                continue
            values.update({f"{name}.{port}": value for port, value in made.items()})
        return {f"o{i}": values[end] for i, end in enumerate(self.outputs) if end in values}, failed

    def _node(self, name: str, given: dict[str, Any]) -> dict[str, Any]:
        node = self.nodes[name]
        repeat = self.repeats.get(name)
        if repeat is None:
            return expected(node["component"], node["params"], given)
        how, over = repeat
        if how == "loop":
            made: dict[str, Any] = {}
            for _ in range(over):
                made = expected(node["component"], node["params"], given)
                given = {**given, "a": made["result"]}
            return made
        items = given.pop("text")
        return {"text": [expected(node["component"], node["params"], {**given, "text": one})["text"] for one in items]}


def random_pipeline(draw: Draw, most: int = 10, *, deep: bool = False) -> Pipeline:
    """`deep`: nodes mostly read what was made last."""
    made = Pipeline()
    pool = [Source(f"@in.{name}", _kind(kind)) for name, kind in INPUTS.items()]
    for index in range(draw.integer(1, most)):
        what = draw.integer(0, 9)
        if what == 0:
            pool.append(_map(made, draw, pool, f"n{index}"))
        elif what == 1:
            pool.append(_loop(made, draw, pool, f"n{index}"))
        else:
            pool += _node(made, draw, pool, f"n{index}", deep=deep)
    for source in pool:
        if not source.end.startswith("@in"):
            to = f"@out.o{len(made.outputs)}"
            made.edges.append({"from": source.end, "to": to, **source.how})
            made.outputs.append(source.end)
    return made


def _kind(type: str) -> str:  # noqa: A002 (a port's)
    return "number" if type.startswith("scalar") else type


def _node(made: Pipeline, draw: Draw, pool: Sequence[Source], name: str, *, deep: bool) -> list[Source]:
    def of(rule: Rule, port: str) -> list[Source]:
        wanted = rule.takes[port]
        kinds = {wanted, "json"} if wanted == "text" else {wanted}
        return [one for one in pool if one.kind in kinds and (port in rule.optional or not one.absent)]

    possible = [rule for rule in RULES if all(of(rule, port) or port in rule.optional for port in rule.takes)]
    near = [rule for rule in possible if any(pool[-1] in of(rule, port) for port in rule.takes)] if deep else []
    rule = draw.one(near or possible)
    made.nodes[name] = {"component": rule.component, "params": rule.params(draw)}
    made.body.append(name)
    for port in rule.takes:
        sources = of(rule, port)
        if port in rule.optional and (not sources or draw.flag()):
            continue
        source = sources[-1] if deep and draw.integer(0, 3) else draw.one(sources)
        made.edges.append({"from": source.end, "to": f"{name}.{port}", **source.how})
    return [Source(f"{name}.{port}", kind, port in rule.absent) for port, kind in rule.gives.items()]


def _map(made: Pipeline, draw: Draw, pool: Sequence[Source], name: str) -> Source:
    """A component that takes the items of a list one by one; its texts are collected."""
    over = draw.one([one for one in pool if one.kind == "list of text" and not one.how])
    rule = draw.one([one for one in RULES if one.component in ("text.trim", "text.replace")])
    made.nodes[name] = {"component": rule.component, "params": rule.params(draw)}
    made.body.append(
        {"map": over.end, "as": f"m{name}", "bound": "10000", "width": draw.one(["1", "3"]), "body": [name]}
    )
    made.edges.append({"from": over.end, "to": f"{name}.text", "each": True})
    made.repeats[name] = "map", over.end
    return Source(f"{name}.text", "list of text", how={"collect": "list"})


def _loop(made: Pipeline, draw: Draw, pool: Sequence[Source], name: str) -> Source:
    """A number that is added to again and again."""
    times = draw.integer(1, 4)
    [rule, *_] = [one for one in RULES if one.component == "numbers.arithmetic"]
    made.nodes[name] = {"component": rule.component, "params": {"operation": draw.one(["add", "maximum"]), "number": 3}}
    made.body.append({"loop": f"l{name}", "times": str(times), "body": [name]})
    source = draw.one([one for one in pool if one.kind == "number" and not one.absent])
    made.edges += [{"from": source.end, "to": f"{name}.a"}, {"from": f"{name}.result", "to": f"{name}.a"}]
    made.repeats[name] = "loop", times
    return Source(f"{name}.result", "number")
