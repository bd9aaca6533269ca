"""Broken graphs with their problems, which the editor mends: `editor_broken.json` is written here, the editor's tests
write the mended graphs to `editor_mended.json`, and the backend judges those.

python -m tests.golden.editor_repairs, then in editor/frontend: npx vitest run -u tests/panels/repairs.test.ts
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from walkgraph.components import catalogue
from walkgraph.graph.check import check
from walkgraph.resources import bundled

FOLDER = Path(__file__).resolve().parent
BROKEN = FOLDER / "editor_broken.json"
MENDED = FOLDER / "editor_mended.json"
HINT = "if this is meant, write both files anew: see the head of tests/golden/editor_repairs.py"

Document = dict[str, Any]
Fault = dict[str, str]
WALKS = ("read_text", "decode")


def sound() -> Document:
    """A text goes in, another comes out: two Walks of the starter."""
    shapes = json.loads(bundled("graphs")["shapes"].read_text())
    names = ("tokenizer", "start", "detokenizer", "llm")
    task = {
        "inputs": {"prompt": {"modality": "text"}},
        "outputs": ["text"],
        "params": {
            "max_tokens": {"type": "integer", "default": 8, "min": 1, "max": 64},
            "temperature": {"type": "number", "default": 0.0, "min": 0, "max": 2},
            "top_p": {"type": "number", "default": 1.0, "min": 0, "max": 1},
            "top_k": {"type": "integer", "default": 0, "min": 0, "max": 100},
        },
        "steps": [{"walk": "read_text", "with": {"text": "@task.prompt"}}, {"walk": "decode"}],
    }
    nodes = {name: shapes["nodes"][name] for name in names}
    nodes["llm"]["params"] = {key: nodes["llm"]["params"][key] for key in ("temperature", "top_p", "top_k")}
    return {
        "format": "walkgraph/graph@1",
        "name": "mend",
        "weights": shapes["weights"],
        "states": {name: shapes["states"][name] for name in ("main", "tail")},
        "nodes": nodes,
        "walks": {name: shapes["walks"][name] for name in WALKS},
        "tasks": {"answer": task},
    }


def _set(value: Any, *path: str | int) -> Callable[[Document], None]:
    """Put a value at a place; at the end of a list, append it; None takes the place away."""

    def change(graph: Document) -> None:
        at: Any = graph
        for part in path[:-1]:
            at = at.setdefault(part, {}) if part not in at and isinstance(part, str) else at[part]
        if value is None:
            del at[path[-1]]
        elif path[-1] == len(at) and not isinstance(path[-1], str):
            at.append(value)
        else:
            at[path[-1]] = value

    return change


def _all(*changes: Callable[[Document], None]) -> Callable[[Document], None]:
    def change(graph: Document) -> None:
        for one in changes:
            one(graph)

    return change


STREAM = {"name": "spare", "from": "llm.token", "walks": ["decode"], "chunks": {"policy": "fixed", "size": 1}}
ALONE = {
    "inputs": {"text": "text"},
    "body": ["other"],
    "edges": [["@in.text", "other.text"], ["other.ids", "@out.ids"]],
}

FAULTS: dict[str, Callable[[Document], None]] = {
    "a cache isn't bound": _set(None, "nodes", "llm", "states"),
    "a state isn't bound, and there is none": _all(
        _set(None, "nodes", "detokenizer", "states"), _set(None, "states", "tail")
    ),
    "a state that isn't there": _set(None, "states", "tail"),
    "a state of another kind": _set("tail", "nodes", "llm", "states", "kv"),
    "a slot that isn't there": _set("tail", "nodes", "llm", "states", "more"),
    "a cache without a size": _set(None, "states", "main", "capacity"),
    "a tensor with a size": _set("12", "states", "tail", "capacity"),
    "no weights are named": _set(None, "nodes", "llm", "weights"),
    "weights that aren't there": _set("gone", "nodes", "llm", "weights"),
    "no weights at all": _all(
        *(_set(None, "nodes", name, "weights") for name in ("tokenizer", "start", "detokenizer"))
    ),
    "no entry of weights": _all(
        _set(None, "weights", "shapes"),
        *(_set(None, "nodes", name, "weights") for name in ("tokenizer", "start", "detokenizer", "llm")),
    ),
    "weights of another family": _all(
        _set({"family": "orpheus", "source": "random:tiny:0"}, "weights", "speech"),
        _set("speech", "nodes", "llm", "weights"),
    ),
    "weights for what has none": _all(
        _set({"component": "text.trim", "weights": "shapes"}, "nodes", "trim"),
        _set(["trim", "tokenizer", "llm"], "walks", "read_text", "body"),
        _set(["@in.text", "trim.text"], "walks", "read_text", "edges", 0),
        _set(["trim.text", "tokenizer.text"], "walks", "read_text", "edges", 2),
    ),
    "results kept of what isn't deterministic": _set("shared", "nodes", "llm", "kept"),
    "a parameter that isn't there": _set(1, "nodes", "llm", "params", "foo"),
    "nothing feeds the tokenizer": _set(None, "walks", "read_text", "edges", 0),
    "nothing feeds it, and there is no input": _all(
        _set(None, "walks", "read_text", "edges", 0),
        _set(None, "walks", "read_text", "inputs"),
        _set({"walk": "read_text"}, "tasks", "answer", "steps", 0),
    ),
    "an input that the Walk lacks": _all(
        _set(None, "walks", "read_text", "inputs"), _set({"walk": "read_text"}, "tasks", "answer", "steps", 0)
    ),
    "a binding that the Walk lacks": _set("@task.prompt", "tasks", "answer", "steps", 0, "with", "more"),
    "an input that the task lacks": _set(None, "tasks", "answer", "inputs"),
    "a step leaves an input open": _set({"walk": "read_text"}, "tasks", "answer", "steps", 0),
    "a step leaves it open in a task without inputs": _all(
        _set({"walk": "read_text"}, "tasks", "answer", "steps", 0), _set(None, "tasks", "answer", "inputs")
    ),
    "an input may be absent": _set(True, "tasks", "answer", "inputs", "prompt", "optional"),
    "a wire from nobody": _set(["nobody.x", "llm.clean"], "walks", "read_text", "edges", 2),
    "a wire from no port": _set(["tokenizer.nope", "llm.clean"], "walks", "read_text", "edges", 2),
    "a wire from no stream": _set(["@stream.nope", "llm.clean"], "walks", "read_text", "edges", 2),
    "a wire with flags for no loop": _set(
        {"from": "tokenizer.ids", "to": "llm.ids", "each": True, "collect": True}, "walks", "read_text", "edges", 1
    ),
    "an output that nobody sends": _set("nothing", "tasks", "answer", "outputs", 1),
    "a task without outputs": _set([], "tasks", "answer", "outputs"),
    "a spare node": _set({"component": "text.tokenizer", "weights": "shapes"}, "nodes", "spare"),
    "a spare node with things of its own": _all(
        _set({"family": "bagel", "source": "starter:shapes"}, "weights", "own"),
        _set({"kind": "tensor"}, "states", "own"),
        _set({"component": "text.detokenizer", "weights": "own", "states": {"tail": "own"}}, "nodes", "spare"),
    ),
    "a spare state": _set({"kind": "rng"}, "states", "spare"),
    "spare weights": _set({"family": "bagel", "source": "starter:shapes"}, "weights", "spare"),
    "a spare stream": _set([STREAM], "streams"),
    "a spare Walk": _all(
        _set({"component": "text.tokenizer", "weights": "shapes"}, "nodes", "other"), _set(ALONE, "walks", "alone")
    ),
    "a spare Walk with another task's node": _set(
        {"inputs": {"token": "tokens"}, "body": ["llm"], "edges": [["@in.token", "llm.token"]]}, "walks", "alone"
    ),
    "a spare input": _all(
        _set("text", "walks", "read_text", "inputs", "spare"),
        _set("@task.prompt", "tasks", "answer", "steps", 0, "with", "spare"),
    ),
    "a spare parameter": _set({"type": "integer", "default": 1}, "tasks", "answer", "params", "spare"),
    "a former name": _set({"component": "media.picture_fit"}, "nodes", "spare"),
    "a wire that sends each and all": _set(
        {"from": "detokenizer.text", "to": "@out.text", "each": True, "collect": True}, "walks", "decode", "edges", 3
    ),
}


def problems(graph: Document) -> list[Fault]:
    found = check(graph, catalogue()).problems
    return [
        {"code": one.code, "pointer": one.pointer, "message": one.message, "severity": one.severity} for one in found
    ]


def broken() -> dict[str, Document]:
    made: dict[str, Document] = {}
    for name, change in FAULTS.items():
        graph = sound()
        change(graph)
        made[name] = {"graph": graph, "problems": problems(graph)}
    return made


def dumps() -> str:
    lines = (f"  {json.dumps(name)}: {json.dumps(case, separators=(',', ':'))}" for name, case in broken().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    BROKEN.write_text(dumps())
