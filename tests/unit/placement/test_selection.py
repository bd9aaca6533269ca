"""A request's selection is read, checked against the graph, and described by the schema."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from walkgraph.components import catalogue
from walkgraph.errors import InvalidInput
from walkgraph.graph import codec
from walkgraph.placement.selection import OutputSource, Selection, read_outputs, schema, sources_in


def read(repository: Path, graph: str, task: str, given: Any) -> tuple[tuple[str, ...] | None, dict[str, Selection]]:
    loaded = codec.load(json.loads((repository / "graphs" / f"{graph}.json").read_text()))
    declared = loaded.tasks[task]
    found = read_outputs(given, declared, partial(sources_in, loaded, declared, catalogue()))
    jsonschema.validate(given, schema(declared))
    return found


@pytest.mark.parametrize(
    ("graph", "task", "given", "names", "selected"),
    [
        ("shapes", "text_to_image", ["image"], ("image",), {}),
        ("shapes", "text_to_image", {"image": {}}, ("image",), {}),
        ("shapes", "text_to_image", {"preview": {"every": 2}}, ("preview",), {"preview": Selection(every=2)}),
        (
            "vjepa2_ac",
            "rollout",
            {"pose": {}, "features": {"dtype": "float16", "every": 5}},
            ("pose", "features"),
            {"features": Selection(dtype="float16", every=5)},
        ),
        (
            "vjepa2_ac",
            "encode",
            {"features": {"dtype": "bfloat16"}},
            ("features",),
            {"features": Selection(dtype="bfloat16")},
        ),
        ("reach", "episode", {"film": {"last": True}}, ("film",), {"film": Selection(last=True)}),
        ("synthetic_passes", "ramble", {"token": {"last": True}}, ("token",), {"token": Selection(last=True)}),
    ],
)
def test_a_selection_is_read(
    repository: Path, graph: str, task: str, given: Any, names: Any, selected: dict[str, Selection]
) -> None:
    assert read(repository, graph, task, given) == (names, selected)


@pytest.mark.parametrize(
    ("graph", "task", "given", "pointer", "message"),
    [
        ("shapes", "chat", {}, "", "in a list or as keys"),
        ("shapes", "chat", [], "", "in a list or as keys"),
        ("shapes", "chat", "text", "", "in a list or as keys"),
        ("shapes", "chat", ["text", 3], "", "in a list or as keys"),
        ("shapes", "chat", {"image": {}}, "", "name some of `text`"),
        ("shapes", "chat", {"text": 3}, "/text", "must be an object"),
        ("shapes", "chat", {"text": {"evry": 3}}, "/text/evry", "`every`"),
        ("shapes", "chat", {"text": {"dtype": "float16"}}, "/text/dtype", "is encoded (`text"),
        ("shapes", "chat", {"text": {"last": True}}, "/text/last", "one text in pieces"),
        ("shapes", "text_to_image", {"image": {"dtype": "float16"}}, "/image/dtype", "is encoded (`image"),
        ("shapes", "text_to_image", {"image": {"every": 2}}, "/image/every", "no stream"),
        ("synthetic_loops", "count", {"token": {"dtype": "float16"}}, "/token/dtype", "is no float (`tokens"),
        ("vjepa2_ac", "encode", {"features": {"last": True}}, "/features/last", "no stream"),
        ("vjepa2_ac", "rollout", {"features": {"dtype": "int8"}}, "/features/dtype", "`bfloat16`"),
        ("vjepa2_ac", "rollout", {"features": {"dtype": ["float16"]}}, "/features/dtype", "`bfloat16`"),
        ("vjepa2_ac", "rollout", {"features": {"every": 0}}, "/features/every", "an integer from 1"),
        ("vjepa2_ac", "rollout", {"features": {"every": True}}, "/features/every", "an integer from 1"),
        ("vjepa2_ac", "rollout", {"features": {"every": 2.0}}, "/features/every", "an integer from 1"),
        ("vjepa2_ac", "rollout", {"features": {"last": 1}}, "/features/last", "true or false"),
        ("vjepa2_ac", "rollout", {"features": {"last": True, "every": 2}}, "/features/every", "leave `every` out"),
    ],
)
def test_what_can_not_be_selected_is_refused_with_its_place(
    repository: Path, graph: str, task: str, given: Any, pointer: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        read(repository, graph, task, given)
    assert refused.value.pointer == f"/outputs{pointer}"
    assert message in str(refused.value)


def test_an_output_of_an_unknown_type_may_be_selected(repository: Path) -> None:
    """The type that a called task or a plug-in gives is known only when it comes; then only floats are converted."""
    loaded = codec.load(json.loads((repository / "graphs" / "vjepa2_ac.json").read_text()))
    declared = loaded.tasks["rollout"]
    found = read_outputs(
        {"features": {"dtype": "float16", "every": 2}}, declared, lambda name: [OutputSource(None, many=True)]
    )
    assert found[1] == {"features": Selection(dtype="float16", every=2)}
