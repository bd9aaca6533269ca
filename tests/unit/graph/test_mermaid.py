"""Drawings: stable text in which loops, branches, carried edges and streams can be told apart."""

import re
from typing import Any

import pytest
from hypothesis import given, settings

from tests.unit.graph.documents import document
from tests.unit.graph.strategies import DOCUMENTS
from tests.unit.graph.test_check_choices import DOCUMENT as CHOICES
from walkgraph.errors import NotFound
from walkgraph.graph.codec import load
from walkgraph.graph.mermaid import draw

DRAWN = """\
flowchart LR
  use_noise["noise<br/><i>toy.noise</i>"]
  subgraph box_1["loop denoise: steps - 1 times"]
    index_denoise(("index"))
    subgraph box_2["parallel"]
      use_llm["llm<br/><i>toy.backbone</i>"]
      use_llm_guide["llm_guide<br/><i>toy.backbone</i><br/>when scale #gt; 1"]
    end
    use_euler["euler<br/><i>toy.euler</i>"]
    subgraph box_3["sequence, when @loop.index % 10 == 9"]
      use_preview["preview<br/><i>toy.painter</i>"]
    end
  end
  use_painter["painter<br/><i>toy.painter</i>"]
  out_preview(["preview"])
  out_image(["image"])
  use_noise -->|"latents"| use_llm
  use_noise -->|"latents"| use_llm_guide
  use_noise -->|"latents"| use_euler
  use_euler -.->|"latents"| use_llm
  use_euler -.->|"latents"| use_llm_guide
  use_euler -.->|"latents"| use_euler
  use_llm -->|"velocity"| use_euler
  use_llm_guide -->|"velocity"| use_euler
  use_euler -->|"latents"| use_preview
  index_denoise --> use_preview
  use_preview -->|"image, each"| out_preview
  use_euler -->|"latents"| use_painter
  use_painter -->|"image"| out_image
"""


def test_a_walk() -> None:
    made = document()
    made["walks"]["draw"]["body"][1]["body"][0]["parallel"][1]["when"] = "scale > 1"
    assert draw(load(made), "draw") == DRAWN


def test_streams_are_thick_and_forks_have_a_shape() -> None:
    graph = load(document())
    assert 'fork_1{{"fork main into guide<br/>when scale #gt; 1"}}' in draw(graph, "look")
    assert 'use_llm ==>|"hidden"| stream_hidden' in draw(graph, "write")
    assert 'stream_hidden ==>|"each"| use_talker' in draw(graph, "talk")
    assert 'subgraph box_1["loop words: max_tokens times, until llm.stop"]' in draw(graph, "write")


def test_the_component_graph_is_the_union() -> None:
    lines = draw(load(document())).splitlines()
    assert lines[0] == "flowchart LR"
    assert [line.strip() for line in lines if "==>" in line] == [
        'node_llm ==>|"prompt: whole"| node_talker',
        'node_llm ==>|"hidden: fixed"| node_talker',
        'node_talker ==>|"codes: left_context"| node_vocoder',
    ]
    assert lines.count("  node_noise --> node_llm") == 1
    assert "  node_euler -.-> node_euler" in lines
    assert "  node_llm --> node_euler" in lines
    assert [line.strip() for line in lines if "subgraph" in line] == [
        f'subgraph partition_{i}["partition {i + 1}"]' for i in range(3)
    ]


def test_a_walk_that_is_not_there() -> None:
    with pytest.raises(NotFound, match="did you mean `draw`"):
        draw(load(document()), "drow")


def test_what_reads_as_markup_is_escaped() -> None:
    made: dict[str, Any] = {
        "name": "g",
        "nodes": {"a": {"component": "t.x"}},
        "walks": {"w": {"body": [{"use": "a", "when": "mode != '\"<b>' and 1 > 0 # &"}]}},
    }
    assert "when mode != '#quot;#lt;b#gt;' and 1 #gt; 0 #35; #amp;" in draw(load(made), "w")


def test_names_with_dashes_stay_apart() -> None:
    names = ["a-b", "a_b", "a__b", "a-_b", "a_-b", "a_db"]
    made = {"name": "g", "nodes": {n: {"component": "t.x"} for n in names}}
    ids = [line.split("[")[0].strip() for line in draw(load(made)).splitlines()[1:]]
    assert len(set(ids)) == len(names)
    assert all(re.fullmatch(r"\w+", i) for i in ids)


@given(DOCUMENTS)
@settings(max_examples=60)
def test_any_graph_can_be_drawn(value: dict[str, Any]) -> None:
    graph = load(value)
    for walk in (None, *graph.walks):
        text = draw(graph, walk)
        assert text == draw(graph, walk)
        assert len(re.findall(r"^ +subgraph ", text, re.MULTILINE)) == len(re.findall(r"^ +end$", text, re.MULTILINE))


def test_a_choice_is_a_box_of_branches_and_a_merge_joins_them() -> None:
    drawn = draw(load(CHOICES), "make")
    for line in (
        'choice_1{"judge.kind<br/><i>choose</i>"}',
        'subgraph box_2["judge.kind is draw"]',
        'subgraph box_3["otherwise"]',
        'merge_picture(("picture"))',
        'use_draw -->|"picture"| merge_picture',
        'use_photo -->|"picture"| merge_picture',
        "merge_picture --> use_show",
        'use_judge -->|"kind"| choice_1',
    ):
        assert f" {line}\n" in drawn, line
