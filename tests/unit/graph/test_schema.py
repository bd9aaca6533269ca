"""The published schema says what the models say, in the form that people write."""

import copy
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings

from tests.unit.graph.changes import changed
from tests.unit.graph.documents import document
from tests.unit.graph.strategies import DOCUMENTS
from tests.unit.graph.test_check_nodes import STRUCTURE
from walkgraph.graph import schema as module
from walkgraph.graph.codec import dump, load
from walkgraph.graph.reading.guard import read_json
from walkgraph.graph.schema import FILE, SCHEMA_ID, generate, schema, text

VALIDATOR = jsonschema_rs.validator_for(schema())


def test_the_file_is_what_the_models_make() -> None:
    assert Path(module.__file__).with_name(FILE).read_text(encoding="utf-8") == text(), (
        "run `python -m walkgraph.graph.schema`"
    )
    assert schema() == generate()


def test_it_is_versioned_and_described() -> None:
    assert schema()["$id"] == SCHEMA_ID
    assert schema()["properties"]["format"]["const"] == "walkgraph/graph@1"
    definitions = schema()["$defs"]
    assert definitions["Edge"]["properties"]["collect"]["description"].startswith("Leaving a loop")
    assert definitions["Fork"]["description"].startswith("Copy-on-write")


def test_no_object_is_open_but_the_layout() -> None:
    def objects(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            if value.get("type") == "object":
                yield path, value
            for key, child in value.items():
                yield from objects(child, f"{path}/{key}")
        elif isinstance(value, list):
            for i, child in enumerate(value):
                yield from objects(child, f"{path}/{i}")

    open_ones = [path for path, found in objects(schema(), "") if found.get("additionalProperties") is not False]
    assert open_ones == ["/properties/layout", "/$defs/Blueprint/properties/layout"]


def test_both_forms_of_a_document_are_valid() -> None:
    VALIDATOR.validate(document())
    VALIDATOR.validate(load(document()).model_dump(mode="json", by_alias=True))


def test_bundled_graphs_are_valid(repository: Path) -> None:
    for path in sorted((repository / "graphs").glob("*.json")):
        VALIDATOR.validate(read_json(path.read_bytes()))


@given(DOCUMENTS)
@settings(max_examples=60)
def test_well_formed_documents_are_valid(value: dict[str, Any]) -> None:
    VALIDATOR.validate(value)
    VALIDATOR.validate(dump(load(value)))


LIMITS = ("bad_number", "bad_text", "too_large")
"""Not of the schema's business: JSON itself, and sizes."""


@pytest.mark.parametrize("change", [pytest.param(c, id=f"{code}{p}") for code, c, p in STRUCTURE if code not in LIMITS])
def test_broken_documents_are_not(change: Any) -> None:
    assert not VALIDATOR.is_valid(copy.deepcopy(changed(change)))
