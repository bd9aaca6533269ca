"""Graphs that can be planned but not deployed are refused by name."""

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from walkgraph.components import catalogue
from walkgraph.graph.catalogue import Catalogue
from walkgraph.resources import bundled
from walkgraph.service.deployments.judging import check_here, deployable, judge
from walkgraph.service.deployments.task_graphs import KnownGraphs
from walkgraph.service.http.problems import Unprocessable


def document(name: str) -> dict[str, object]:
    return json.loads(bundled("graphs")[name].read_text())


def refusal(name: str, **changes: object) -> Unprocessable:
    judged = judge(document(name) | changes, None, ())
    assert judged.plan is not None, judged.placement_problems
    with pytest.raises(Unprocessable) as caught:
        deployable(judged)
    return caught.value


class Lacking(KnownGraphs):
    """One component is declared alone."""

    @property
    def catalogue(self) -> Catalogue:
        known = {**catalogue()}
        known["qwen3_omni.talker"] = replace(known["qwen3_omni.talker"], network=None)
        return known


def test_a_component_without_a_network_is_refused() -> None:
    weights = {"omni": {"family": "qwen3_omni", "source": "checkpoint:none"}}
    judged = judge(document("qwen3_omni") | {"weights": weights}, None, (), (), None, Lacking())
    with pytest.raises(Unprocessable) as refused:
        deployable(judged)
    assert {fault.code for fault in refused.value.faults} == {"unavailable", "no_weights"}
    assert "(`no_weights` and `unavailable`)" in str(refused.value)


def test_weights_that_are_not_here_are_refused() -> None:
    refused = refusal("shapes", weights={"shapes": {"family": "bagel", "source": "checkpoint:none"}})
    assert [fault.code for fault in refused.faults] == ["no_weights"]
    assert "(`no_weights`)" in str(refused)


def test_weights_that_are_not_here_are_told_once_at_their_place_and_by_a_check_alone(tmp_path: Path) -> None:
    graph = document("shapes") | {"weights": {"shapes": {"family": "bagel", "source": "checkpoint:none"}}}
    (checked,) = check_here(graph, (tmp_path,)).problems
    assert (checked.code, checked.pointer, checked.severity) == ("no_weights", "/weights/shapes/source", "warning")
    assert "put the folder there, or name another" in checked.message
    judged = judge(graph, None, (), (tmp_path,))
    assert judged.graph_problems == (checked,)
    assert not judged.deployable


def test_a_folder_without_the_tokenizer_that_a_node_reads_is_told_before_it_is_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "mute"
    folder.mkdir()
    for file in resources.files("walkgraph.starters.shapes").iterdir():
        if file.name.endswith((".safetensors", "config.json")):
            (folder / file.name).symlink_to(str(file))
    graph = document("shapes") | {"weights": {"shapes": {"family": "bagel", "source": "checkpoint:mute"}}}
    told = [(p.code, p.pointer) for p in check_here(graph, (tmp_path,)).problems]
    nodes = ("tokenizer", "start", "detokenizer")
    assert told == [("no_tokenizer", f"/nodes/{node}/weights") for node in nodes]
    assert not judge(graph, None, (), (tmp_path,)).deployable
    (folder / "tokenizer.json").write_text("{}")
    assert check_here(graph, (tmp_path,)).problems == ()


def test_a_plan_without_either_is_the_answer() -> None:
    judged = judge(document("shapes"), None, ())
    assert deployable(judged) is judged.plan
