"""A family is one folder: it is found by its name, loads no other, and one more is one folder more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.graphs.test_bundled import host
from walkgraph import components, models, plugins
from walkgraph.components import catalogue, families
from walkgraph.graph.build import GraphBuilder
from walkgraph.graph.check import check
from walkgraph.graph.document import Graph
from walkgraph.placement.document import default_placement
from walkgraph.placement.plan import plan
from walkgraph.placement.sizes import find_sizes

FAMILIES = plugins.names(plugins.MODELS)
OPERATED = plugins.having(plugins.MODELS, "operators")
PARTS = ("components", "config", "importing", "presets")
"""Files that need no torch."""

LOADED = """
import importlib, json, os, sys, traceback
from walkgraph import plugins
for name in {first!r}:
    importlib.import_module(name)
inside = lambda: sorted(name for name in sys.modules if name.startswith(plugins.MODELS + "."))
assert inside() == [], inside()
told = []
for files in {loads!r}:
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            for file in files:
                plugins.load(plugins.MODELS, file, "NONE", None)
            os.write(writer, json.dumps([inside(), "torch" in sys.modules]).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as answer:
        told.append(json.loads(answer.read() or "null"))
    os.wait()
print(json.dumps(told))
"""
"""Each load has a process of its own, forked from one that has imported what is named first and nothing of a family."""

TINT = """
from walkgraph.graph.catalogue import port
from walkgraph.graph.declaring import Declarations
from walkgraph.placement.sizes import FamilySizes, Part, Shape

_component = Declarations("tint", category="Picture", weights="tint")
COMPONENTS = (
    _component(
        "tint.mix",
        "Mixes the colours of a picture.",
        inputs=(port("pixels", "pixels: float[3, h, w]"),),
        outputs=(port("pixels", "pixels: float[3, h, w]"),),
    ),
)
SIZES = {
    "tint": FamilySizes(
        parts={"mix": Part(stem="mix")},
        components={"tint.mix": ("mix",)},
        shapes={"tint-tiny": Shape(parts={"mix": 9})},
    ),
}
"""


def loaded(first: tuple[str, ...], loads: dict[str, list[str]]) -> dict[str, tuple[set[str], bool]]:
    """By family: which families a process has imported once it has loaded these files, and whether it has torch."""
    kept = {name: os.environ[name] for name in ("PYTHONPYCACHEPREFIX",) if name in os.environ}
    answer = subprocess.run(
        [sys.executable, "-c", LOADED.format(first=first, loads=[*loads.values()])],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"PYTHONPATH": str(Path(models.__file__).parents[2]), **kept},
    )
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    assert None not in told, answer.stderr
    inside = [{name.removeprefix(f"{plugins.MODELS}.").partition(".")[0] for name in names} for names, _ in told]
    return {family: (names, torch) for family, names, (_, torch) in zip(loads, inside, told, strict=True)}


def test_what_the_service_reads_of_a_family_loads_no_other_and_no_torch() -> None:
    there = {family: plugins.names(f"{plugins.MODELS}.{family}") for family in FAMILIES}
    files = {family: [f"{family}.{part}" for part in PARTS if part in there[family]] for family in FAMILIES}
    assert loaded((), files) == {family: ({family}, False) for family in FAMILIES}


def test_the_operators_of_a_family_load_no_other() -> None:
    operators = {family: [f"{family}.operators"] for family in OPERATED}
    assert loaded(("torch",), operators) == {family: ({family}, True) for family in OPERATED}


def test_every_component_is_of_the_family_that_declares_it() -> None:
    for family in FAMILIES:
        declared = plugins.load(plugins.MODELS, f"{family}.components", "COMPONENTS")
        assert declared
        assert {component.name.partition(".")[0] for component in declared} == {family}


@pytest.fixture
def tint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more family: its folder, and nothing else."""
    folder = tmp_path / "tint"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "components.py").write_text(TINT)
    models.__path__.append(str(tmp_path))
    monkeypatch.setattr(components, "_known", [])
    yield
    models.__path__.remove(str(tmp_path))
    for name in [name for name in sys.modules if name.startswith(f"{plugins.MODELS}.tint")]:
        del sys.modules[name]


@pytest.mark.usefixtures("tint")
def test_one_folder_more_is_a_family_more() -> None:
    assert plugins.names(plugins.MODELS) == tuple(sorted((*FAMILIES, "tint")))
    assert catalogue()["tint.mix"].network == "walkgraph.models.tint.operators:Mix"
    graph = tinted()
    report = check(graph, catalogue())
    assert (report.problems, report.graph) == ((), graph)
    here = host(1)
    made = plan(graph, default_placement(graph, here), here, catalogue(), find_sizes(families()))
    assert made.deployable
    assert made.plan is not None
    assert "tint.mix" in {node.component for node in made.plan.nodes}


def test_a_family_that_is_gone_leaves_nothing_behind() -> None:
    assert "tint.mix" not in catalogue()
    assert "tint" not in families()


def tinted() -> Graph:
    g = GraphBuilder("tinted", description="Mixes the colours of a picture.")
    weights = g.weights("tint", family="tint", source="random:tint-tiny:0")
    nodes = [
        g.node("read", "media.picture_in"),
        g.node("mix", "tint.mix", weights=weights),
        g.node("write", "media.picture_out"),
    ]
    with g.walk("mix", image="image") as w:
        read, mix, write = (w.use(node) for node in nodes)
        w.edge(w.input("image"), read["image"])
        w.edge(read["pixels"], mix["pixels"])
        w.edge(mix["pixels"], write["pixels"])
        w.edge(write["image"], w.out("image"))
    with g.task("tint", outputs=["image"]) as t:
        image = t.input("image", "image")
        t.step("mix", {"image": image})
    return g.build()
