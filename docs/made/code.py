"""Documents the command line, the client, the catalogue of components and the graph's schema from the code."""

from __future__ import annotations

import ast
import inspect
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from made.words import anchor, code, kind_of, sentence, table
from walkgraph import graph, placement, resources
from walkgraph.cli import main as cli
from walkgraph.client import Client
from walkgraph.client.calls import description
from walkgraph.components import catalogue
from walkgraph.graph import schema
from walkgraph.graph.language.shaping import shaped

CALLS = {
    "RunCalls": "Runs and tasks",
    "DeploymentCalls": "Deployments",
    "DocumentCalls": "Documents",
    "JudgingCalls": "Checks and plans",
    "BlueprintCalls": "Blueprints",
    "WatchCalls": "Watching",
    "KeyCalls": "Keys and audit",
}
"""The classes that `Client` and `AsyncClient` are made of."""


# ── command line ────────────────────────────────────────────────────────────────────────────────


def verbs() -> str:
    """Every verb with its help, by section."""
    app: Any = typer.main.get_command(cli.build())
    by_section: dict[str, list[str]] = {name: [] for name in cli.SECTIONS}
    for name, command in sorted(app.commands.items()):
        section = cli.plugins.load(cli.VERBS, name, "SECTION", cli.SECTIONS[0])
        by_section[section].append(_verb(command, f"walkgraph {name}"))
    return "\n".join(f"## {name}\n\n" + "\n".join(found) for name, found in by_section.items() if found)


def _verb(command: Any, words: str) -> str:
    inner = getattr(command, "commands", {})
    head = f"({anchor('verb', words)})=\n### `{words}`\n\n{_prose(command.help or '')}\n"
    if inner:
        rows = [(code(f"{words} {name}"), sentence(one.get_short_help_str(200))) for name, one in inner.items()]
        return (
            head + "\n" + table(("verb", ""), rows) + "".join(_options(one, f"{words} {n}") for n, one in inner.items())
        )
    return head + _options(command, words)


def _options(command: Any, words: str) -> str:
    usage = f"{words} {' '.join(command.collect_usage_pieces(_context()))}".replace("{", "").replace("}", "")
    rows = []
    for one in command.params:
        if getattr(one, "hidden", False) or not getattr(one, "opts", None):
            continue
        name = (one.metavar or one.name.upper()) if one.param_type_name == "argument" else ", ".join(one.opts)
        rows.append((code(name), sentence(getattr(one, "help", "") or "")))
    return f"\n```text\n{usage}\n```\n\n{table(('argument', ''), rows)}\n"


@cache
def _context() -> Any:
    return typer.main.get_command(cli.build()).make_context("walkgraph", ["version"], resilient_parsing=True)


def _prose(text: str) -> str:
    """Help as paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


# ── client ──────────────────────────────────────────────────────────────────────────────────────


def calls(owner: str) -> str:
    """The described calls of one class, as methods of the client."""
    [kind] = [base for base in Client.__mro__ if base.__name__ == owner]
    parts = []
    for name in vars(kind):
        found = description(Client, name)
        if found is not None:
            parts.append(_call(name, found))
    if not parts:
        raise KeyError(f"`{owner}` describes no calls")
    return "\n".join(parts)


def _call(name: str, describe: Any) -> str:
    signature = inspect.signature(describe)
    given = [one for key, one in signature.parameters.items() if key != "self"]
    words = str(signature.replace(parameters=given, return_annotation=inspect.Signature.empty))
    answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    doc = inspect.cleandoc(describe.__doc__ or "")
    return f"```{{py:method}} Client.{name}{words.replace(chr(39), '')} -> {answer}\n\n{doc}\n```\n"


# ── components and graphs ───────────────────────────────────────────────────────────────────────


def components() -> str:
    """All that come with the package, by family."""
    families: dict[str, list[str]] = defaultdict(list)
    for name, one in sorted(catalogue().items()):
        families[name.partition(".")[0]].append(_component(one))
    return "\n".join(f"## {family}\n\n" + "\n".join(found) for family, found in families.items())


def _component(one: Any) -> str:
    ports = [
        (kind, code(p.name), code(p.type), "yes" if getattr(p, "optional", False) else "", sentence(p.description))
        for kind, found in (("in", one.inputs), ("out", one.outputs))
        for p in found
    ]
    params = [
        (code(name), p.type, code("" if p.default is None else p.default), sentence(p.description))
        for name, p in one.params.items()
    ]
    told = [] if one.available else ["It is declared without a network: graphs with it can be planned, not deployed."]
    told += ["Runs on the CPU of its rank."] if one.host else []
    told += ["Loops of it may run on the device."] if one.resident else []
    told += ["Its network can be divided over several ranks."] if one.tensor_parallel else []
    told += ["The tokens of its flow steps can be divided over several ranks."] if one.sequence_parallel else []
    told += [f"Keeps {', '.join(f'`{state.slot}` ({state.kind})' for state in one.states)}."] if one.states else []
    lines = [f"### `{one.name}`", "", sentence(one.description), "", " ".join(told), ""]
    lines.append(table(("", "port", "type", "optional", ""), ports))
    lines.append(table(("parameter", "kind", "default", ""), params))
    lines += [_example(one, example) for example in one.examples]
    return "\n".join(lines)


def _example(component: Any, example: Any) -> str:
    node = shaped(component, example.params)
    lines = example.lines(node.inputs, node.outputs)
    rows = [(kind, code(name), code(value)) for kind, name, value in lines]
    return f"Example. {sentence(example.note)}".strip() + "\n\n" + table(("", "", "value"), rows)


def graph_schema() -> str:
    """The published JSON Schema, definition by definition."""
    document = schema.document() if callable(schema.document) else json.loads(schema.text())
    top = {key: value for key, value in document.items() if key != "$defs"}
    return "\n".join(_definition(name, one) for name, one in {"Graph": top, **document["$defs"]}.items())


def _definition(name: str, one: dict[str, Any]) -> str:
    needed = set(one.get("required", ()))
    rows = [
        (code(key), kind_of(value), "yes" if key in needed else "", sentence(value.get("description", "")))
        for key, value in one.get("properties", {}).items()
    ]
    body = table(("key", "kind", "needed", ""), rows) or kind_of(one)
    return f"({anchor('graph', name)})=\n## {name}\n\n{sentence(one.get('description', ''))}\n\n{body}\n"


def checks() -> str:
    """Every code that `check` and `plan` may find, with the file that finds it."""
    rows: dict[str, tuple[str, str]] = {}
    for package, title in ((graph, "graph"), (placement, "plan")):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            for name, severity in _found(path):
                rows[name] = (title, severity)
    return table(("code", "of the", ""), [(code(name), *rows[name]) for name in sorted(rows)])


def _found(path: Path) -> list[tuple[str, str]]:
    """(code, severity) of the problems that a file makes."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Name(id="Problem") | ast.Attribute(attr="add"),
                args=[ast.Constant(value=str(name)), _, *rest],
            ) if rest and name.isidentifier():
                last = node.args[-1]
                warning = isinstance(last, ast.Constant) and last.value == "warning"
                found.append((name, "warning" if warning else ""))
    return found


def graphs() -> str:
    """The documents that come with the package."""
    rows = []
    for name, path in resources.bundled("graphs").items():
        found = json.loads(path.read_text(encoding="utf-8"))
        rows.append((code(name), ", ".join(map(code, found["tasks"])), sentence(found.get("description", ""))))
    return table(("graph", "tasks", ""), rows)


def picture_nodes() -> str:
    """Every node of a bundled graph that makes pixels on a processor, with its parameters."""
    known = catalogue()
    rows = []
    for name, path in resources.bundled("graphs").items():
        for node, written in json.loads(path.read_text(encoding="utf-8"))["nodes"].items():
            component = known[written["component"]]
            if component.host and component.output("pixels"):
                params = ", ".join(
                    code(f"{key}: {json.dumps(value)}") for key, value in written.get("params", {}).items()
                )
                rows.append((code(name), code(node), code(component.name), params))
    return table(("graph", "node", "component", "parameters"), rows)
