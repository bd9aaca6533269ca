"""Documents the service's requests and answers from the service itself, without starting it or importing torch."""

from __future__ import annotations

import functools
import inspect
import json
import tempfile
from pathlib import Path
from typing import Any, get_args

from fastapi.routing import APIWebSocketRoute

from made.words import anchor, cell, code, documented, kind_of, sentence, table
from walkgraph import errors as errors_module
from walkgraph import settings as settings_module
from walkgraph.errors import ErrorCode, ErrorInfo
from walkgraph.graph.reading import guard
from walkgraph.service.access import callers
from walkgraph.service.app import create_app
from walkgraph.service.http import dialects, problems
from walkgraph.service.http import limits as limits_module
from walkgraph.settings import Settings
from walkgraph.store.session import Store

TAGS = {
    "tasks": "Tasks",
    "sessions": "Sessions",
    "limits": "Limits",
    "openai": "OpenAI's routes",
    "kserve": "KServe v2",
    "runs": "Runs",
    "traces": "Traces",
    "watch": "Taps and breakpoints",
    "deployments": "Deployments",
    "graphs": "Graphs",
    "placements": "Placements",
    "blueprints": "Blueprints",
    "plans": "Plans",
    "hosts": "Hosts",
    "components": "Components",
    "schemas": "Schemas",
    "keys": "Keys and audit",
    "studio": "Studio",
    "health": "Health",
    "metrics": "Metrics",
}
"""Tags of the OpenAPI document and their titles, in the order of the page."""


@functools.cache
def _app() -> Any:
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home), studio=False)
        store = Store.open(settings.database)
        try:
            return create_app(settings, token="-" * 32, store=store, spawn=_never)
        finally:
            store.close()


async def _never(*_: object) -> Any:
    raise AssertionError("the documentation deploys nothing")


@functools.cache
def document() -> dict[str, Any]:
    """The OpenAPI document, as `/openapi.json` serves it."""
    return _app().openapi()


# ── settings and limits ─────────────────────────────────────────────────────────────────────────


def settings() -> str:
    """One row for each field."""
    told = documented(Path(settings_module.__file__))
    properties = Settings.model_json_schema()["properties"]
    rows = []
    for name, field in Settings.model_fields.items():
        default = "`~/.walkgraph`" if name == "home" else _default(field.default)
        kind = kind_of({k: v for k, v in properties[name].items() if k != "default"}).replace("list of string", "list")
        rows.append((code(f"WALKGRAPH_{name.upper()}"), kind, default, sentence(told.get(f"Settings.{name}", ""))))
    return table(("variable", "kind", "default", "what it is"), rows)


def _default(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return code(json.dumps(value) if isinstance(value, bool) else value)


def limits() -> str:
    """One row for each limit, as `/v1/limits` serves them."""
    told = {
        str(value): text
        for module in (guard, limits_module)
        for name, text in documented(Path(module.__file__)).items()
        for value in [name]
    }
    names = _named(Path(limits_module.__file__))
    rows = [
        (code(key), _amount(key, value), sentence(told.get(names.get(key, ""), "")))
        for key, value in limits_module.TABLE.items()
    ]
    return table(("limit", "value", "of what"), rows)


def _named(path: Path) -> dict[str, str]:
    """Key of the table -> the constant that it stands for."""
    lines = path.read_text(encoding="utf-8").partition("TABLE: ")[2].splitlines()
    pairs = [line.strip().rstrip(",").split(": ") for line in lines if line.startswith('    "')]
    return {key.strip('"'): value.rpartition(".")[2] for key, value in pairs}


def _amount(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        for size, unit in ((2**20, "MiB"), (2**10, "KiB")):
            if value >= size and value % size == 0:
                return f"{value / size:,.0f} {unit}"
    return f"{value:,.0f}{' s' if name.endswith('_seconds') else ''}"


# ── errors and scopes ───────────────────────────────────────────────────────────────────────────

MEANT: dict[ErrorCode, str] = {
    "invalid_input": "The document, a parameter or a file is wrong; `errors` points at it",
    "not_found": "There is nothing of that name, or nothing of it that this caller may see",
    "conflict": "It can't be done as things are: the name is taken, the key was used for another request",
    "refused": "It is valid, and can't be served here: it doesn't fit, a component has no network",
    "overloaded": "No room now: the queue is full, or the deployment is not ready yet",
    "rate_limited": "This caller's own limit; `Retry-After` says when the next request fits",
    "cancelled": "The run was ended: by its client, by somebody who steers it, by a newer request of its session",
    "not_approved": "A person has refused the run",
    "expired": "Nobody answered in time what the run asked",
    "deadline_exceeded": "The run took longer than its `deadline`, or `WALKGRAPH_RUN_TIMEOUT`",
    "worker_lost": "A process that the run needed ended; it is started again",
    "stalled": "Nothing of the run was under way and nothing could come; the error names what it waited for",
    "out_of_memory": "A device had no memory left for this run; others went on",
    "numeric_error": "A value was not finite, and would not be if asked again; the error names the node",
    "node_error": "A component failed on what it was given; the error names node and kinds of inputs",
    "no_call": "The model wrote no call that can be used, though `tool_choice` asks for one",
    "stream_error": "A stream between two parts broke its rules",
    "storage_lost": "The database file was removed or replaced while the service ran; nothing was saved",
    "shutting_down": "The service is stopping; ask again where it is started anew",
    "internal_error": "A fault of the service; its log says more",
}


def errors() -> str:
    """One row for each code that an error may have."""
    known = get_args(ErrorCode)
    if set(MEANT) != set(known):
        raise KeyError(f"codes of {errors_module.__name__} without a sentence: {set(known) ^ set(MEANT)}")
    rows = []
    for name in known:
        said = problems.said_of_run(ErrorInfo(code=name, message=""))
        openai = dialects.openai_error(said)
        kind = openai.get("error", openai).get("type")
        rows.append((code(name), said.status, code(kind), sentence(MEANT[name])))
    return table(("code", "status", "OpenAI's `type`", "meaning"), rows)


def scopes() -> str:
    """The one table that decides who may call what."""
    rows = [(code(row.methods), code(row.path), ", ".join(map(code, row.scopes))) for row in callers.TABLE]
    return table(("methods", "path", "one of these scopes"), rows)


# ── routes ──────────────────────────────────────────────────────────────────────────────────────


def routes() -> str:
    """All operations by tag: first a table, then each with what it takes and answers."""
    parts = []
    for tag, title in TAGS.items():
        found = [(path, method, one) for path, method, one in operations() if one["tags"] == [tag]]
        rows = [
            (f"[`{m.upper()} {path}`](#{anchor(m, path)})", sentence(_words(one).partition(". ")[0]))
            for path, m, one in found
        ]
        details = "\n".join(_operation(path, method, one) for path, method, one in found)
        parts.append(f"## {title}\n\n{table(('route', ''), rows)}\n{details}")
    return "\n".join(parts)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    """(path, method, operation) of the OpenAPI document."""
    return [(path, method, one) for path, ways in document()["paths"].items() for method, one in ways.items()]


def _words(operation: dict[str, Any]) -> str:
    return " ".join((operation.get("description") or operation["summary"].capitalize()).split())


def _operation(path: str, method: str, one: dict[str, Any]) -> str:
    needed = callers.row_for(method.upper(), path.replace("{", "").replace("}", ""))
    scope = ", ".join(map(code, needed)) if needed else "`admin`"
    if path.startswith(("/health", "/v2/health")):
        scope = "none: open"
    lines = [f"({anchor(method, path)})=", f"### `{method.upper()} {path}`", "", sentence(_words(one)), ""]
    lines += [f"Scope: {scope}.", ""]
    rows = [
        (code(p["name"]), p["in"], kind_of(p.get("schema", {})), sentence(p.get("description", "")))
        for p in one.get("parameters", ())
    ]
    lines.append(table(("parameter", "in", "kind", ""), rows))
    for kind, body in one.get("requestBody", {}).get("content", {}).items():
        lines.append(f"Body, `{kind}`: {_shape(body.get('schema', {}))}\n")
    for status, answer in one["responses"].items():
        if status in ("4XX", "5XX"):
            continue
        kinds = [f"`{kind}`: {_shape(body.get('schema', {}))}" for kind, body in answer.get("content", {}).items()]
        lines.append(f"{status}: {'; '.join(kinds) or 'nothing'}\n")
    return "\n".join(lines)


def _shape(schema: dict[str, Any]) -> str:
    inside = schema.get("properties")
    if inside:
        return "object of " + ", ".join(code(name) for name in inside)
    return cell(kind_of(schema))


def sockets() -> str:
    """The WebSockets, which OpenAPI has no words for."""
    rows = []
    for path, words in sorted(socket_routes().items()):
        needed = callers.row_for(callers.SOCKET, path.replace("{", "").replace("}", "")) or ("admin",)
        rows.append((code(path), ", ".join(map(code, needed)), sentence(words)))
    return table(("socket", "scope", ""), rows)


def socket_routes() -> dict[str, str]:
    """Path -> what its function says of it."""
    found: dict[str, str] = {}
    todo = [*_app().routes]
    while todo:
        route = todo.pop()
        todo += getattr(getattr(route, "original_router", None), "routes", ())
        if isinstance(route, APIWebSocketRoute):
            found[route.path] = inspect.getdoc(route.endpoint) or ""
    return found


def schemas() -> str:
    """The bodies that routes name."""
    parts = []
    for name, schema in sorted(document()["components"]["schemas"].items()):
        needed = set(schema.get("required", ()))
        rows = [
            (code(key), kind_of(value), "yes" if key in needed else "", sentence(value.get("description", "")))
            for key, value in schema.get("properties", {}).items()
        ]
        words = sentence(schema.get("description", ""))
        body = table(("field", "kind", "needed", ""), rows) or kind_of(schema)
        parts.append(f"({anchor('body', name)})=\n### {name}\n\n{words}\n\n{body}")
    return "\n".join(parts)
