"""Graph -> a Python program on `graph.build` that makes exactly the same graph."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from walkgraph.graph import document as doc
from walkgraph.graph.reading.guard import arr, obj

_WIDTH = 112
_TAB = "    "


def to_python(graph: doc.Graph) -> str:
    """The program; its variable `graph` is the graph."""
    policies = sorted({stream.chunks.policy for stream in graph.streams})
    lines = [
        f'"""The graph `{graph.name}`."""',
        "",
        f"from walkgraph.graph.build import {', '.join(['GraphBuilder', *policies])}",
        "",
        *_call("g = GraphBuilder", [graph.name], {"description": graph.description} if graph.description else {}),
    ]
    sections = (_declared(graph), _blueprints(graph), _walks(graph), _streams(graph), _tasks(graph), _layout(graph))
    for section in sections:
        lines += section
    return "\n".join([*lines, "", "graph = g.build()", ""])


def _declared(graph: doc.Graph) -> Iterator[str]:
    for title, call, entries, first in (
        ("weights", "g.weights", graph.weights, ""),
        ("states", "g.state", graph.states, "kind"),
        ("nodes", "g.node", graph.nodes, "component"),
    ):
        if entries:
            yield from ("", f"# {title}")
        for name, entry in entries.items():
            given = _given(entry)
            yield from _call(call, [name, *([given.pop(first)] if first else [])], given)


def _blueprints(graph: doc.Graph) -> Iterator[str]:
    for name, blueprint in graph.blueprints.items():
        yield ""
        given = {"description": blueprint.description} if blueprint.description else {}
        given |= {"inputs": dict(blueprint.inputs)} if blueprint.inputs else {}
        given |= {"origin": _given(blueprint.origin)} if blueprint.origin else {}
        yield from _with("g.blueprint", [name], given, "w", _blueprint(blueprint))


def _blueprint(blueprint: doc.Blueprint) -> Iterator[str]:
    for call, entries, first in (
        ("w.param", blueprint.params, "type"),
        ("w.weights", blueprint.weights, ""),
        ("w.state", blueprint.states, "kind"),
        ("w.node", blueprint.nodes, "component"),
    ):
        for name, entry in entries.items():
            given = _given(entry)
            yield from _call(call, [name, *([given.pop(first)] if first else [])], given)
    yield from _body(blueprint)
    for name, output in blueprint.outputs.items():
        yield from _call("w.output", [name, output.from_], _given(output, "from_"))
    for key, value in blueprint.layout.items():
        yield from _call("w.layout", [key, value], {})


def _walks(graph: doc.Graph) -> Iterator[str]:
    for name, walk in graph.walks.items():
        yield ""
        arguments = {"label": walk.label} if walk.label else {}
        if walk.inputs:
            arguments |= {"inputs": dict(walk.inputs)}
        yield from _with("g.walk", [name], arguments, "w", _walk(walk))


def _walk(walk: doc.Walk) -> Iterator[str]:
    yield from _body(walk)
    for name, result in walk.results.items():
        yield from _call("w.result", [name, result.from_], _given(result, "from_"))


def _body(walk: doc.Walk | doc.Blueprint) -> Iterator[str]:
    for item in walk.body:
        yield from _item(item)
    for name, sources in walk.merges.items():
        yield from _call("w.merge", [name, *sources], {})
    for edge in walk.edges:
        yield from _call("w.edge", [edge.from_, edge.to], _given(edge, "from_", "to"))


def _item(item: doc.Item) -> Iterator[str]:
    match item:
        case doc.Use():
            yield from _call("w.use", [item.use], _given(item, "use"))
        case doc.Fork():
            yield from _call("w.fork", [item.fork, item.into], _given(item, "fork", "into"))
        case doc.Loop():
            yield from _with("w.loop", [item.loop], _given(item, "loop", "body"), "", _items(item.body))
        case doc.Map():
            yield from _with("w.map", [item.map], _given(item, "map", "body"), "", _items(item.body))
        case doc.Parallel():
            yield from _with("w.parallel", [], _given(item, "parallel"), "", _items(item.parallel))
        case doc.Sequence():
            yield from _with("w.sequence", [], _given(item, "sequence"), "", _items(item.sequence))
        case doc.Choose():
            given = _given(item, "choose", "cases", "otherwise")
            yield from _with("w.choose", [item.choose], given, "", _branches(item, "w", _items))


def _branches(choice: doc.Choose | doc.ChooseStep, owner: str, inside: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    for value, items in choice.cases.items():
        yield from _with(f"{owner}.case", [value], {}, "", inside(items))
    if choice.otherwise:
        yield from _with(f"{owner}.otherwise", [], {}, "", inside(choice.otherwise))


def _items(items: tuple[doc.Item, ...]) -> Iterator[str]:
    for item in items:
        yield from _item(item)


def _streams(graph: doc.Graph) -> Iterator[str]:
    if graph.streams:
        yield ""
    for stream in graph.streams:
        given: dict[str, Any] = {"walks": list(stream.walks), "chunks": _Code(_chunks(stream))}
        if "credits" in _given(stream):
            given["credits"] = stream.credits
        yield from _call("g.stream", [stream.name, stream.from_], given)


def _chunks(stream: doc.Stream) -> str:
    arguments = _given(stream.chunks, "policy")
    return f"{stream.chunks.policy}({', '.join(f'{key}={_literal(value)}' for key, value in arguments.items())})"


# ── tasks ───────────────────────────────────────────────────────────────────────────────────────


def _tasks(graph: doc.Graph) -> Iterator[str]:
    for name, task in graph.tasks.items():
        yield ""
        arguments: dict[str, Any] = {"outputs": list(task.outputs)} | ({"label": task.label} if task.label else {})
        yield from _with("g.task", [name], arguments, "t", _task(task))


def _task(task: doc.Task) -> Iterator[str]:
    for name, declared in task.inputs.items():
        yield from _call("t.input", [name, declared.modality], _given(declared, "modality"))
    for name, param in task.params.items():
        yield from _call("t.param", [name, param.type], _given(param, "type"))
    if isinstance(task.steps, dict):
        if not task.steps:
            yield "t.lanes()"
        for lane, steps in task.steps.items():
            yield from _with("t.lane", [lane], {}, "", _steps(steps))
    else:
        yield from _steps(task.steps)
    if task.session is not None:
        yield from _call("t.session", [], _given(task.session))


def _steps(steps: tuple[doc.Step, ...], depth: int = 0) -> Iterator[str]:
    for step in steps:
        match step:
            case doc.WalkStep():
                given = _given(step, "walk", "with_")
                yield from _call("t.step", [step.walk, *([dict(step.with_)] if step.with_ else [])], given)
            case doc.FirstStep():
                yield from _with("t.first", [], {}, "", _steps(step.first, depth))
            case doc.ChooseStep():
                inside = _branches(step, "t", lambda steps: _steps(steps, depth + 1))
                yield from _with("t.choose", [step.choose], {}, "", inside)
            case doc.LoopStep():
                yield from _with("t.loop", [], _given(step, "loop"), "", _steps(step.loop, depth + 1))
            case doc.ApproveStep():
                yield from _call("t.approve", list(step.approve), _given(step, "approve"))
            case doc.ForStep():
                over = "turns" if isinstance(step, doc.TurnsStep) else "parts"
                name = f"{over}{depth or ''}"
                yield f"{name} = t.{over}()"
                for kind, inner in step.branches.items():
                    yield from _with(f"{name}.steps", [kind], {}, "", _steps(inner, depth + 1))


def _layout(graph: doc.Graph) -> Iterator[str]:
    if graph.layout:
        yield ""
    for key, value in graph.layout.items():
        yield from _call("g.layout", [key, value], {})


# ── Python ──────────────────────────────────────────────────────────────────────────────────────


class _Code(str):
    """An argument that is written out verbatim."""

    __slots__ = ()


def _literal(value: Any) -> str:
    if isinstance(value, _Code):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_literal(key)}: {_literal(child)}' for key, child in obj(value).items())}}}"
    return f"[{', '.join(map(_literal, arr(value)))}]" if isinstance(value, list) else repr(value)


def _wrapped(name: str, value: Any) -> list[str]:
    """An argument on one line, or an object with one entry per line."""
    line = f"{name}{_literal(value)},"
    if len(line) <= _WIDTH or not isinstance(value, dict):
        return [line]
    entries = [f"{_TAB}{_literal(key)}: {_literal(child)}," for key, child in obj(value).items()]
    return [f"{name}{{", *entries, "},"]


def _given(record: doc.Record, *without: str) -> dict[str, Any]:
    """The fields that differ from their defaults, under their Python names."""
    fields = record.model_dump(exclude_defaults=True, exclude=set(without))
    return {
        key: list(cast(tuple[Any, ...], value)) if isinstance(value, tuple) else value for key, value in fields.items()
    }


def _call(function: str, arguments: list[Any], named: Mapping[str, Any]) -> list[str]:
    """A call on one line where it fits, otherwise with one argument per line."""
    line = f"{function}({', '.join([*map(_literal, arguments), *(f'{k}={_literal(v)}' for k, v in named.items())])})"
    if len(line) <= _WIDTH:
        return [line]
    pairs = [*(("", value) for value in arguments), *((f"{key}=", value) for key, value in named.items())]
    return [f"{function}(", *(f"{_TAB}{part}" for name, value in pairs for part in _wrapped(name, value)), ")"]


def _with(
    function: str, arguments: list[Any], named: Mapping[str, Any], name: str, inside: Iterator[str]
) -> Iterator[str]:
    *lines, last = _call(f"with {function}", arguments, named)
    yield from lines
    yield f"{last}{f' as {name}' if name else ''}:"
    empty = True
    for line in inside:
        empty = False
        yield f"{_TAB}{line}"
    if empty:
        yield f"{_TAB}pass"
