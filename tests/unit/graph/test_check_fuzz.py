"""Thousands of mangled documents: `check` never raises, is quick, and points at places that exist."""

import json
import random
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from tests.support.yardstick import fastest
from tests.unit.graph.documents import CATALOGUE, document
from walkgraph.graph.check import check
from walkgraph.graph.reading import wellformed

SEEDS = range(20)
"""The `system` tier goes on to 100."""
DOCUMENTS = 50
DOCUMENT = json.dumps(document())
LIMIT_S = 0.2
"""The largest mutants take 0.04 s of an idle core, and twice that beside other work; what is not bounded takes
seconds."""

_NAMES = ["llm", "main", "read", "draw", "seed", "loop", "use", "words", "@in.text", "llm.token", "index", "", "\ud800"]
_TEXTS = ["steps - 1", "1 / 0", "@loop.index", "=steps", "=", "((((", "a" * 500, "x" * 30_000, "tokens: int[n]", "'"]
_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    3,
    2**70,
    1.5,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    {"use": {}},
    set(),
]


def mangle(value: Any, rng: random.Random) -> Any:
    """A copy with one to four changes at random places."""
    for _ in range(rng.randint(1, 4)):
        places = list(_places(value))
        parent, key = rng.choice(places)
        _change(parent, key, rng)
    return value


def _places(value: Any) -> Any:
    stack = [value]
    while stack:
        here = stack.pop()
        keys = list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()
        for key in keys:
            yield here, key
            stack.append(here[key])


def _change(parent: Any, key: Any, rng: random.Random) -> None:
    match rng.randrange(9):
        case 0:
            del parent[key]
        case 1:
            parent[key] = rng.choice(_VALUES)
        case 2:
            parent[key] = rng.choice(_NAMES)
        case 3:
            parent[key] = rng.choice(_TEXTS)
        case 4 if isinstance(parent, dict):
            parent[rng.choice([*_NAMES, *map(str, parent)])] = parent.pop(key)
        case 5:
            parent[key] = _nested(rng.choice([3, 30, 70, 2000]), rng)
        case 6:
            parent[key] = [parent[key]] if rng.random() < 0.5 else rng.choice(list(_places(json.loads(DOCUMENT))))[0]
        case 7 if isinstance(parent, list):
            parent.insert(key, parent[rng.randrange(len(parent))])
        case 8 if isinstance(parent[key], str):
            at = rng.randrange(len(parent[key]) + 1)
            parent[key] = parent[key][:at] + rng.choice("x._@=[]é ") + parent[key][at + 1 :]
        case _:
            parent[key] = rng.choice(_NAMES)


def _nested(depth: int, rng: random.Random) -> Any:
    value: Any = "llm"
    key = rng.choice(["sequence", "parallel", "body", None])
    for _ in range(depth):
        value = [value] if key is None else {key: [value], "loop": "a", "times": "1"}
    return value


def resolves(document: Any, pointer: str) -> bool:
    value = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return False
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_mangled_documents(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(DOCUMENTS):
        mangled = mangle(json.loads(DOCUMENT), rng)
        began = time.thread_time()
        report = check(mangled, CATALOGUE)
        if time.thread_time() - began > LIMIT_S:
            assert fastest(partial(check, mangled, CATALOGUE), LIMIT_S, time.thread_time) < LIMIT_S
        assert all(resolves(mangled, p.pointer) for p in report.problems), report.problems
        assert all(p.message and p.code for p in report.problems)
        assert len({(p.code, p.pointer) for p in report.problems if p.code != "missing_key"}) <= len(report.problems)


def test_a_cycle_is_too_deep() -> None:
    value = document()
    value["layout"]["self"] = value
    (problem,) = check(value, CATALOGUE).problems
    assert problem.code in ("too_deep", "too_large")


@pytest.mark.parametrize("name", ["name", "format", "body", "steps", "times"])
def test_a_field_where_it_means_nothing_is_taken_out_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that is required elsewhere isn't filled in: then it would be wrong again in every round."""
    rounds = Counter[str]()
    validate = wellformed._validate

    def counted(given: Any) -> Any:
        rounds[place] += 1
        return validate(given)

    monkeypatch.setattr(wellformed, "_validate", counted)
    inside = [(*at, key) for at, key in _paths(document())]
    for path in inside:
        changed, place = document(), "/".join(map(str, path))
        here = changed
        for part in path:
            here = here[part]
        if isinstance(here, dict):
            here[name] = {"type": "word"}
            assert all(resolves(changed, p.pointer) for p in wellformed.Draft(changed).problems), place
    assert len(rounds) > 20
    assert max(rounds.values()) <= 4, rounds.most_common(3)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield path, key
        yield from _paths(value[key], (*path, key))


def test_a_thousand_wrong_names_take_no_search_each() -> None:
    many = document()
    many["nodes"] |= {f"euler_{i}": {"component": "toy.euler"} for i in range(1500)}
    edges = [[f"euler_{i}.latnts", f"eular_{i}.guide"] for i in range(2000)]
    many["walks"]["draw"]["body"].extend(f"euler_{i}" for i in range(1500))
    many["walks"]["draw"]["edges"].extend(edges)
    report = check(many, CATALOGUE)
    took = fastest(partial(check, many, CATALOGUE), 1.0, time.thread_time)
    assert report.errors[-1].code == "too_many"
    assert took < 1.0, "every search compares with all names"
