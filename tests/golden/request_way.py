"""The way of a request through the code: the functions that run for one picture of the starter, in all processes.

`python -m tests.golden.request_way` writes the golden anew; `... PATH` prints the way of the code in `PATH/backend`.
"""

from __future__ import annotations

import ast
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.serving import service

REQUESTS = 5
"""Functions that depend on timing run in some of them, the others in all. Timers are excluded (`traced`)."""
SETTLED_SECONDS = 0.2
"""From the answer to the end of what follows from the request; below the time after which ranks are pinged."""
STEPS = 20
"""Enough that the route waits for the end."""
HERE = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_suffix(".txt")
GROWTH = 1.02
"""By how much files or lines may grow beyond the golden."""

Called = tuple[str, int]
"""File, relative to the package, and first line of a function."""


class Way(NamedTuple):
    files: int
    functions: int
    lines: int
    """Lines of these functions."""


def traced(checkout: Path = HERE) -> set[Called]:
    """Functions that ran in every one of several requests. Each differs from those before in its prompt, and in a
    parameter that decides about its steps, so that nothing is remembered of them."""
    with tempfile.TemporaryDirectory(prefix="way") as folder:
        phase = Path(folder) / "phase"
        phase.write_bytes(b"\0")
        paths = (HERE / "tests" / "support" / "traced", checkout / "backend")
        environment = {"TRACED_CALLS": folder, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        with service(Path(folder) / "home", telemetry="off", studio="false") as found:
            found.environment |= environment
            found.up()
            found.wait_ready("shapes")
            with found.client() as client, phase.open("r+b", buffering=0) as flag:
                for number in range(REQUESTS + 1):
                    flag.seek(0)
                    flag.write(bytes([number]))  # the first is not counted: it meets what is made once
                    params = {"steps": STEPS, "cfg_text_scale": 2 + number, "seed": number}
                    prompt = f"{number} red circles"
                    client.run("shapes", "text_to_image", {"inputs": {"prompt": prompt}, "params": params})
                    time.sleep(SETTLED_SECONDS)
                flag.seek(0)
                flag.write(b"\0")
            found.down()
        return _in_all(Path(folder), checkout / "backend" / "walkgraph")


def measured(called: set[Called], package: Path) -> dict[str, Way]:
    """By the folders at the package's top, and of all as ``."""
    lines: dict[str, set[int]] = {}
    functions: Counter[str] = Counter()
    for file in {file for file, _ in called}:
        firsts = {first for name, first in called if name == file}
        bodies = _bodies(package / file)
        found = [bodies[first] for first in firsts if first in bodies]
        if found:
            lines[file] = {line for body in found for line in body}
            functions[file] = len(found)
    parts: dict[str, list[str]] = defaultdict(list)
    for file in lines:
        parts[file.partition("/")[0]].append(file)
    return {
        name: Way(len(files), sum(functions[f] for f in files), sum(len(lines[f]) for f in files))
        for name, files in {"": list(lines), **dict(sorted(parts.items()))}.items()
    }


def shown(ways: Mapping[str, Way]) -> str:
    """As the golden has it."""
    rows = [("", "files", "functions", "lines"), *((name or "all", *map(str, way)) for name, way in ways.items())]
    return "".join(f"{row[0]:<14}{row[1]:>6}{row[2]:>11}{row[3]:>8}\n" for row in rows)


def grown(golden: Way, way: Way) -> bool:
    return way.files > GROWTH * golden.files or way.lines > GROWTH * golden.lines


def read(golden: str) -> Way:
    """The whole way of a golden."""
    row = next(line.split() for line in golden.splitlines() if line.startswith("all "))
    return Way(*map(int, row[1:]))


def _in_all(folder: Path, package: Path) -> set[Called]:
    phases: dict[int, set[Called]] = defaultdict(set)
    for calls in folder.glob("calls.*"):
        for line in calls.read_text().splitlines():
            number, first, name = line.split("\t")
            if Path(name).is_relative_to(package):
                phases[int(number)].add((str(Path(name).relative_to(package)), int(first)))
    return set.intersection(*(phases[number] for number in range(1, REQUESTS + 1)))


def _bodies(path: Path) -> dict[int, range]:
    """First line of each function, with decorators, and its lines."""
    found: dict[int, range] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found[first] = range(first, (node.end_lineno or first) + 1)
    return found


if __name__ == "__main__":
    where = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else HERE
    text = shown(measured(traced(where), where / "backend" / "walkgraph"))
    if where == HERE:
        GOLDEN.write_text(text)
    print(text, end="")
