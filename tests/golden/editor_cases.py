"""Cases that the editor must derive exactly like the backend: routes of Walks, matching types, written documents.

python -m tests.golden.editor_cases
"""

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from walkgraph.components import catalogue
from walkgraph.graph import codec
from walkgraph.graph.catalogue import Component, Param, port
from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.walks import accesses
from walkgraph.graph.document import Graph
from walkgraph.graph.language.expressions import ExpressionError, evaluate, parse
from walkgraph.graph.language.shaping import shaped
from walkgraph.graph.language.syntax import FUNCTIONS
from walkgraph.graph.ports import accepts, parse_type
from walkgraph.graph.reading.wellformed import Draft
from walkgraph.graph.structure import End, Route, WalkStructure, apart, structure
from walkgraph.resources import bundled
from walkgraph.service.schemas.palette import shown

FILE = Path(__file__).resolve().with_name("editor_cases.json")
RANDOM_WALKS = 40
RANDOM_CHOICES = 20
RANDOM_MAPS = 20
MORE_TYPES = (
    "latents: float[...]",
    "latents: float[n, 64]",
    "latents: float[64, n]",
    "scalar: int[]",
    "text: bytes",
    "list of image",
)
NODES = ("a", "b", "c", "d", "e")

SHAPED = Component(
    name="test.shaped",
    description="Has ports that follow from parameters.",
    inputs=(
        port("fixed", "scalar"),
        port("typed", "tensor", of="kind"),
        port("many", "list of tensor", of="kind"),
        port("part", "text", optional=True, of="parts"),
        port("hole", "text", of="template"),
        port("same", "text", of="alike", like="kind"),
    ),
    outputs=(port("out", "tensor", of="kind"), port("copy", "text", of="parts")),
    params={
        "kind": Param(type="string", gives="type"),
        "parts": Param(type="string", gives="ports", default="first"),
        "template": Param(type="string", gives="holes", default=""),
        "alike": Param(type="string", gives="ports", default=""),
    },
)
GIVEN = {
    "kind": ("image", "list of text", "pixels: float[3, h, w]", "", "nothing", "scalar: int[N]", "=kind"),
    "alike": ("s", "s, t: image"),
    "parts": (
        "a",
        "a, b: image,c? : list of text",
        "a: pixels: float[3, h, w], b: tensor: float[n]",
        "",
        " ",
        "a, a",
        "a,",
        "a b",
        "9a",
        "a: nothing",
        "_a",
        "a?, b",
        "=a",
        ", ".join(f"p{i}" for i in range(64)),
        ", ".join(f"p{i}" for i in range(65)),
    ),
    "template": (
        "plain",
        "A {size: scalar} by {name}, {name} and {last?: image}.",
        "{a} {{b}} {{{c}}}",
        "{",
        "}",
        "{}",
        "{a: text} {a: image}",
        "{a} {a: text}",
        "{a b}",
        "line\n{a\n}\n{b: tensor: float[n, 2]}",
    ),
}

BY_HAND: dict[str, dict[str, Any]] = {
    "nested": {
        "body": ["a", {"loop": "i", "times": "2", "body": ["b", {"loop": "j", "times": "3", "body": ["c", "d"]}, "e"]}],
        "edges": [
            ["a.x", "b.x"],
            ["e.x", "b.x"],
            {"from": "a.x", "to": "c.y", "each": True},
            ["d.x", "c.x"],
            ["b.x", "c.x"],
            {"from": "d.x", "to": "e.x", "collect": True},
            {"from": "d.x", "to": "@out.d", "each": True},
            ["@loop.index", "c.z"],
            ["@loop.i", "d.z"],
            ["@loop.j", "b.z"],
            ["e.x", "a.x"],
        ],
        "results": {
            "last": "d.x",
            "all": {"from": "d.x", "collect": True},
            "list": {"from": "d.x", "collect": "list"},
            "gone": "nobody.x",
            "a": "a.x",
        },
    },
    "carried_outside": {
        "body": [
            {"loop": "i", "times": "2", "body": [{"loop": "j", "times": "2", "body": ["a"]}, "b"]},
            {"loop": "k", "times": "2", "body": ["c"]},
        ],
        "edges": [
            ["@in.x", "a.x"],
            ["b.x", "a.x"],
            ["a.x", "a.x"],
            ["b.x", "c.x"],
            {"from": "a.x", "to": "c.y", "each": True, "collect": True},
            ["c.x", "c.x"],
            ["c.x", "a.y"],
        ],
    },
    "branches": {
        "inputs": {"x": "text"},
        "body": [
            {
                "parallel": [
                    "a",
                    ["b", {"use": "a", "as": "again", "when": "n > 1"}],
                    {"sequence": ["c"], "when": "n > 2"},
                ]
            },
            {"fork": "kept", "into": "copy", "when": "n > 3"},
            {"loop": "i", "times": "n", "until": "d.stop", "body": [{"parallel": [["d", "e"], "again_too"]}]},
        ],
        "edges": [
            ["@in.x", "a.x"],
            ["a.x", "c.x"],
            ["b.x", "again.x"],
            ["again.x", "d.x"],
            ["e.x", "d.x"],
            {"from": "@stream.s", "to": "d.y", "each": True},
            ["@stream.s", "e.y"],
            ["@out.x", "a.y"],
            ["a.x", "@in.x"],
            ["nobody.x", "a.z"],
            {"from": "d.x", "to": "@out.x", "each": True, "collect": True},
        ],
    },
    "choices": {
        "inputs": {"x": "text"},
        "body": [
            "a",
            {
                "choose": "a.x",
                "cases": {"1": ["b"], "2": [{"choose": "@in.x", "cases": {"p/q": ["c"]}, "otherwise": ["d"]}]},
                "otherwise": ["e"],
            },
            {
                "loop": "i",
                "times": "3",
                "until": "@merge.inner",
                "body": [
                    {"use": "a", "as": "again"},
                    {"choose": "@merge.all", "cases": {"y": [{"use": "b", "as": "b_2"}], "n": []}, "when": "n > 1"},
                    {"choose": "again.x", "cases": {"y": [{"use": "c", "as": "c_2"}]}, "otherwise": [["f", "g"]]},
                ],
            },
        ],
        "merges": {"all": ["b.x", "c.x", "d.x", "e.x"], "nested": ["c.x", "d.x"], "inner": ["c_2.x", "g.x"]},
        "edges": [
            ["a.x", "b.x"],
            ["b.x", "c.x"],
            ["@merge.nested", "e.x"],
            ["@merge.all", "again.x"],
            ["@merge.inner", "again.x"],
            ["@merge.inner", "f.x"],
            ["@merge.nested", "@out.o"],
            {"from": "@merge.inner", "to": "@out.each", "each": True},
            ["f.x", "g.x"],
        ],
        "results": {"last": "@merge.inner", "kept": "@merge.all"},
    },
    "maps": {
        "inputs": {"x": "list of text"},
        "body": [
            "a",
            {"map": "a.x", "bound": "9", "width": "3", "body": ["b", {"loop": "i", "times": "2", "body": ["c"]}]},
            {
                "loop": "round",
                "times": "2",
                "body": [
                    {
                        "map": "e.x",
                        "as": "outer",
                        "bound": "4",
                        "body": [{"map": "d.x", "as": "inner", "bound": "4", "body": ["f"]}],
                    },
                    {"choose": "@in.x", "cases": {"y": [["d"]]}, "otherwise": ["e"]},
                    {"map": "@merge.either", "as": "rest", "bound": "n", "body": ["g"], "when": "n > 1"},
                ],
            },
            {"map": "@in.x", "as": "empty", "bound": "2", "body": [{"fork": "kept", "into": "copy"}]},
        ],
        "merges": {"either": ["d.x", "e.x"]},
        "edges": [
            {"from": "a.x", "to": "b.x", "each": True},
            ["a.x", "b.y"],
            ["b.x", "c.x"],
            ["c.x", "c.y"],
            ["c.x", "b.z"],
            {"from": "c.x", "to": "d.x", "collect": True},
            {"from": "b.x", "to": "@out.b", "each": True},
            ["@loop.items", "c.z"],
            ["@loop.index", "b.w"],
            {"from": "f.x", "to": "f.y", "collect": "list"},
            ["g.x", "f.z"],
            {"from": "e.x", "to": "f.x", "each": True},
            ["@loop.outer", "f.w"],
            {"from": "f.x", "to": "g.x", "each": True, "collect": True},
        ],
        "results": {"all": {"from": "c.x", "collect": True}, "last": "g.x"},
    },
}

READ = {"steps": 50, "shift": 3.0, "low": 0.4, "on": True, "kind": "b"}
INDICES = {"index": 2, "denoise": 2}
WRITTEN = (
    "", "7 // 2", "-7 % 3", "7.5 % -2", "-7.5 // 2", "0 < 3 <= 3", "false or 3 > 2", "1 < 2 and 2 < 3", "round(2.5)",
    "round(-2.5)", "round(3.5)", "float32(0.1)", "flow_time(1, 5, 3.0)", "flow_time(@loop.index, steps, shift)",
    "flow_time(0, 1, 3)", "1 / 0", "1e308 * 10", "kind == 'b'", "kind == 1", "not on", "not 1", "min(1)", "min(4, 2)",
    "pow(2, 3)", "1 +", "(1", "1 2", "1e-3", ".5", "kind != 'c' and on", "true or missing > 1", "min(1, 2,)",
    "-(2 + 3) * -1", "- -3", "not not on", "2 < 1 < missing", "@loop.other", "low <= flow_time(@loop.index, steps, 1)",
)  # fmt: skip
RANDOM_EXPRESSIONS = 400


def cases() -> dict[str, Any]:
    graphs = {name: path.read_text() for name, path in bundled("graphs").items()}
    walks = {
        f"{name}/{walk}": _walk(document.walks[walk].model_dump(mode="json", by_alias=True, exclude_defaults=True))
        for name, document in ((name, codec.load(text)) for name, text in graphs.items())
        for walk in document.walks
    }
    walks |= {f"by hand/{name}": _walk(walk) for name, walk in BY_HAND.items()}
    walks |= {f"random/{seed}": _walk(_random(Random(seed))) for seed in range(RANDOM_WALKS)}
    walks |= {f"random choices/{seed}": _walk(_choosing(Random(seed))) for seed in range(RANDOM_CHOICES)}
    walks |= {f"random maps/{seed}": _walk(_random(Random(seed), maps=True)) for seed in range(RANDOM_MAPS)}
    texts = {
        name: json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":")) for name, text in graphs.items()
    }
    palette = {name: shown(component) for name, component in catalogue().items()}
    return {
        "walks": walks,
        "types": _types(),
        "texts": texts,
        "accesses": _accesses(graphs),
        "catalogue": palette,
        "shaped": _shaped(),
        "expressions": _expressions(),
    }


def _accesses(graphs: dict[str, str]) -> dict[str, list[tuple[str, str, bool]]]:
    """Walk -> use or "" for a fork, state, and whether it is written."""
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for name, text in graphs.items():
        context = Context(Draft(json.loads(text)), catalogue())
        for walk, facts in context.facts.items():
            touched = [
                (entry.name, state, writes)
                for entry in facts.entries
                for state, writes in accesses(context, facts, entry)
            ]
            if touched:
                found[f"{name}/{walk}"] = touched
    return found


def _expressions() -> dict[str, Any]:
    """Texts and their values; null: it has none, or isn't an expression."""
    texts = [*WRITTEN, *(_expression(Random(seed), 3) for seed in range(RANDOM_EXPRESSIONS))]
    return {"params": READ, "loops": INDICES, "values": [[text, _value(text)] for text in texts]}


def _value(text: str) -> Any:
    try:
        return evaluate(parse(text), READ, INDICES)
    except ExpressionError:
        return None


def _expression(random: Random, depth: int) -> str:
    if depth == 0 or random.random() < 0.15:
        numbers = [str(random.randint(0, 9)), f"{random.uniform(0, 9):.2f}", "2.5", "@loop.index", "@loop.denoise"]
        return random.choice([*numbers, *READ, "true", "'b'", "missing"])
    kind = random.choice(["function", "sign", "not", *["operator"] * 5])
    inside = [_expression(random, depth - 1) for _ in range(3)]
    if kind == "function":
        name = random.choice(list(FUNCTIONS))
        return f"{name}({', '.join(inside[: max(FUNCTIONS[name][0], 1)])})"
    if kind == "sign":
        return f"-({inside[0]})"
    if kind == "not":
        return f"not ({inside[0]})"
    first, second = (random.choice("+ - * / // % < <= > >= == != and or".split()) for _ in range(2))
    return random.choice(
        [f"({inside[0]}) {first} {inside[1]}", f"{inside[0]} {first} ({inside[1]}) {second} {inside[2]}"]
    )


def _shaped() -> dict[str, Any]:
    """Parameter and its value -> the ports of a node of `SHAPED` with it."""
    found = {f"{key} {value}": shown(shaped(SHAPED, {key: value})) for key, values in GIVEN.items() for value in values}
    return {
        "component": shown(SHAPED),
        "nodes": [
            [*name.split(" ", 1), [_port(port) for port in made["inputs"]], [_port(port) for port in made["outputs"]]]
            for name, made in found.items()
        ],
    }


def _port(port: dict[str, Any]) -> list[Any]:
    return [port["name"], port["type"], port["optional"]]


def dumps() -> str:
    """A line for each Walk, row and text, so that a difference can be read."""
    found = cases()
    parts: list[str] = []
    for key, value in found.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {_compact(entry)}" for name, entry in value.items())
        parts.append(f'"{key}": {{\n{lines}\n}}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# ── routes ──────────────────────────────────────────────────────────────────────────────────────


def _walk(walk: dict[str, Any]) -> dict[str, Any]:
    graph = _graph(walk)
    found = structure(graph.walks["w"], "w")
    made: dict[str, Any] = {
        "walk": codec.dump(graph)["walks"]["w"],
        "routes": [_route(route) for route in found.routes],
        "results": [_route(route) for route in found.results],
        "beside": _side_by_side(found),
    }
    if found.choices:
        made["choices"] = [_head(route) for choice in found.choices for route in choice.routes]
        made["apart"] = _apart(found)
    if found.maps:
        made["maps"] = [_head(route) for at in found.maps for route in at.routes]
    return made


def _graph(walk: dict[str, Any]) -> Graph:
    nodes = {node: {"component": "test.mix"} for node in NODES}
    return codec.load({"format": "walkgraph/graph@1", "name": "g", "nodes": nodes, "walks": {"w": walk}})


def _route(route: Route) -> list[Any]:
    """In the order that the editor's test reads."""
    facts = [route.common, route.carried, route.backward, route.leave, route.enter, route.left, route.entered]
    return [_end(route.source), _end(route.target), *facts, route.pointer]


def _head(route: Route) -> list[Any]:
    """A value and the place of the choice or map that takes it. Pointers into a normal form say nothing to the
    editor."""
    assert route.target.entry is not None
    return [_end(route.source), route.target.entry.index, route.carried, route.backward, route.left]


def _end(end: End) -> list[Any]:
    return [end.kind, end.name, end.port, end.entry.index if end.entry else None]


def _side_by_side(found: WalkStructure) -> list[tuple[str, str]]:
    """Pairs of uses in different branches of one parallel."""
    uses = tuple(found.uses.values())
    return [
        (a.name, b.name)
        for a in uses
        for b in uses
        if any(x != y and x[0] == y[0] for x, y in zip(a.branches, b.branches, strict=False))
    ]


def _apart(found: WalkStructure) -> list[tuple[str, str]]:
    """Pairs of uses in different branches of one choice."""
    pairs = product(found.uses.values(), repeat=2)
    return [(a.name, b.name) for a, b in pairs if apart(a.cases, b.cases) is not None]


def _random(random: Random, *, maps: bool = False) -> dict[str, Any]:
    """`maps`: some of the loops go through lists."""
    uses: list[str] = []
    loops: list[str] = []
    kinds = ("use", "use", "loop", "parallel", "sequence", "list", *(("map", "map") if maps else ()))
    body = [_item(random, uses, loops, kinds) for _ in range(random.randint(2, 4))]
    if not uses:
        return _random(random, maps=maps)
    edges = [_edge(random, uses, loops) for _ in range(random.randint(4, 16))]
    results = {f"r{i}": {"from": f"{random.choice(uses)}.x", "collect": random.random() < 0.5} for i in range(2)}
    return {"body": ["first", *body], "edges": edges, "results": results}


def _item(random: Random, uses: list[str], loops: list[str], kinds: tuple[str, ...], depth: int = 0) -> Any:
    kind = random.choice(kinds) if depth < 3 else "use"
    if kind == "use":
        uses.append(f"u{len(uses)}")
        return {"use": random.choice(NODES), "as": uses[-1]}
    name, before = f"l{len(loops)}", f"{uses[-1] if uses else 'first'}.x"
    if kind in ("loop", "map"):
        loops.append(name)
    inside = [_item(random, uses, loops, kinds, depth + 1) for _ in range(random.randint(1, 3))]
    if kind == "loop":
        return {"loop": name, "times": "2", "body": inside}
    if kind == "map":
        return {"map": before, "as": name, "bound": "2", "body": inside}
    return inside if kind == "list" else {kind: inside}


def _choosing(random: Random) -> dict[str, Any]:
    """Uses in branches, some of them in a loop, with a merge for each choice."""
    uses: list[str] = []
    merges: dict[str, list[str]] = {}
    body = [_branching(random, uses, merges, 0) for _ in range(random.randint(2, 3))]
    if random.random() < 0.5:
        body = [{"loop": "l0", "times": "2", "body": body}]
    sources = [*(f"{use}.x" for use in uses), *(f"@merge.{merge}" for merge in merges), "first.x"]
    edges = [[random.choice(sources), f"{random.choice(uses)}.{random.choice('xy')}"] for _ in range(12)]
    results = {"r": random.choice(sources)}
    return {"body": ["first", *body], "merges": merges, "edges": edges, "results": results}


def _branching(random: Random, uses: list[str], merges: dict[str, list[str]], depth: int) -> Any:
    uses.append(f"u{len(uses)}")
    first = {"use": random.choice(NODES), "as": uses[-1]}
    if depth == 2 or random.random() < 0.3:
        return first
    value = f"@merge.{random.choice(list(merges))}" if merges and random.random() < 0.3 else "first.x"
    cases: dict[str, list[Any]] = {}
    sources: list[str] = []
    for case in random.sample(("a", "b/c", "no", "yes"), random.randint(1, 3)):
        cases[case] = [_branching(random, uses, merges, depth + 1)]
        sources.append(f"{uses[-1]}.x")
    merges[f"m{len(merges)}"] = sources
    chosen: dict[str, Any] = {"choose": value, "cases": cases}
    if random.random() < 0.3:
        chosen["otherwise"] = [_branching(random, uses, merges, depth + 1)]
    return [first, chosen]


def _edge(random: Random, uses: list[str], loops: list[str]) -> Any:
    sources = [*uses, *uses, "first", "nobody"]
    others = ["@in.x", "@stream.s", "@loop.index", *(f"@loop.{loop}" for loop in loops)]
    start = random.choice(others) if random.random() < 0.2 else f"{random.choice(sources)}.x"
    to = "@out.o" if random.random() < 0.15 else f"{random.choice(uses)}.{random.choice('xy')}"
    flags = {flag: True for flag in ("each", "collect") if random.random() < 0.3}
    return {"from": start, "to": to, **flags} if flags else [start, to]


# ── types ───────────────────────────────────────────────────────────────────────────────────────


def _types() -> dict[str, Any]:
    """For each target the reason for each source, as a number into `reasons`; 0: it fits."""
    ports = (port for component in catalogue().values() for port in (*component.inputs, *component.outputs))
    names = list(dict.fromkeys([*(str(port.type) for port in ports), *MORE_TYPES]))
    read = [parse_type(name) for name in names]
    reasons: dict[str | None, int] = {None: 0}
    flat = [reasons.setdefault(accepts(target, source), len(reasons)) for target, source in product(read, read)]
    size = len(names)
    table = [flat[row * size : (row + 1) * size] for row in range(size)]
    return {"names": names, "reasons": list(reasons), "table": table}


if __name__ == "__main__":
    FILE.write_text(dumps())
