"""Graphs that were written before components had the names of now: they are checked, planned and run as they stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.local import LocalDeployment
from tests.unit.graphs.test_bundled import GRAPHS, PLACEMENTS, host, placement_of
from walkgraph.components import catalogue, families
from walkgraph.graph import codec
from walkgraph.graph.check import check
from walkgraph.placement.document import decode
from walkgraph.placement.plan import PlanResult, plan
from walkgraph.placement.sizes import find_sizes

FORMER = {old: component.name for component in catalogue().values() for old in component.former}
OLD = {new: old for old, new in FORMER.items()}


def aged(name: str) -> dict[str, Any]:
    """A bundled graph, with the names that its components had."""
    document = json.loads(GRAPHS[name].read_text())
    for node in document["nodes"].values():
        node["component"] = OLD.get(node["component"], node["component"])
    return document


def planned(document: Mapping[str, Any], placement: str) -> PlanResult:
    report = check(document, catalogue())
    assert report.ok
    assert report.graph is not None
    chosen = decode(json.loads(PLACEMENTS[placement].read_text()))
    return plan(report.graph, chosen, host(4), catalogue(), find_sizes(families()))


def test_a_name_that_a_component_had_finds_it_and_is_not_listed() -> None:
    assert FORMER["world.keep"] == "world.store_scene"
    assert catalogue()["world.keep"] is catalogue()["world.store_scene"]
    assert not FORMER.keys() & set(catalogue())


@pytest.mark.parametrize("name", GRAPHS)
def test_each_former_name_is_advised_about_once(name: str) -> None:
    document = aged(name)
    used = {node["component"] for node in document["nodes"].values()} & set(FORMER)
    report = check(document, catalogue())
    told = [problem for problem in report.problems if problem.code == "former_name"]
    assert sorted(problem.message for problem in told) == sorted(
        f"`{old}` is now called `{FORMER[old]}`; both names work, but write the new one" for old in used
    )
    assert {problem.severity for problem in told} <= {"warning"}
    for problem in told:
        _, nodes, node, key = problem.pointer.split("/")
        assert document[nodes][node][key] in used
    others = [problem for problem in report.problems if problem.code not in {"former_name", "component_unavailable"}]
    assert others == []


@pytest.mark.parametrize("name", PLACEMENTS)
def test_it_is_planned_as_with_the_names_of_now(name: str) -> None:
    graph = json.loads(PLACEMENTS[name].read_text())["graph"]
    now, before = planned(json.loads(GRAPHS[graph].read_text()), name), planned(aged(graph), name)
    assert now.plan is not None
    assert before.plan is not None
    assert replace(now.plan, digest=before.plan.digest) == before.plan


def test_it_runs_as_with_the_names_of_now() -> None:
    films: list[Any] = []
    for document in (aged("world"), json.loads(GRAPHS["world"].read_text())):
        local = LocalDeployment(codec.load(document), placement_of("world_one_cpu"), threads=1)
        local.submit("run", "imagine", {"scale": 1, "seed": 12, "drive": "square", "horizon": 2}, {})
        local.run()
        assert not local.failed
        films.append(local.outputs["run"])
    assert films[0] == films[1]
    assert films[0]["film"]
