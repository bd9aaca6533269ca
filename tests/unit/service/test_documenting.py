"""The OpenAPI document describes all answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.unit.service.conftest import Running
from walkgraph.errors import ErrorInfo
from walkgraph.service.http import dialects, problems
from walkgraph.service.http.dialects import dialect_of
from walkgraph.service.http.documenting import Problem, schema_of
from walkgraph.store.queries import save_runs
from walkgraph.store.tables import Run, RunTrace
from walkgraph.telemetry import critical, differences, events, statistics
from walkgraph.telemetry.trace import Trace
from walkgraph.wire import messages as m
from walkgraph.wire.answers import runs, traces, watching
from walkgraph.wire.watching import Break, HeldCall, Tap

ERRORS = {True: dialects.PROBLEM_JSON, False: dialects.JSON}
"""True if a path is ours -> the type of its errors."""


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_what_is_watched_traced_and_run_is_typed(service: Running) -> None:
    document = service.app.openapi()
    checked = 0
    for name, operation in operations(document):
        assert {"4XX", "5XX"} <= operation["responses"].keys(), name
        native = dialect_of(name.partition(" ")[2]) == "native"
        assert ERRORS[native] in operation["responses"]["4XX"]["content"], name
        new = {"watch", "traces", "metrics"} & set(operation["tags"])
        if not new and not any(word in name for word in ("/replay", "/steer", "/differences")):
            continue
        (status,) = set(operation["responses"]) - {"4XX", "5XX"}
        if status == "204":
            continue
        checked += 1
        for content in operation["responses"][status]["content"].values():
            schema = content["schema"]
            schema = schema.get("items", schema)
            # A trace, or one of the files of it.
            schema = schema.get("anyOf", [schema])[0]
            assert "$ref" in schema or schema.get("properties") or schema["type"] == "string", name
    assert checked == 13
    assert not [name for name in document["components"]["schemas"] if "__" in name]


@pytest.mark.parametrize(
    ("shown", "kind", "apart"),
    [
        (watching.Tap, Tap, {"expires_at", "inside"}),
        (watching.Breakpoint, Break, {"expires_at", "inside"}),
        (runs.Held, HeldCall, set()),
        (runs.Paused, m.Paused, {"run"}),
        (runs.Numbers, events.Statistics, set()),
        (runs.Row, differences.Row, set()),
        (runs.NodeTime, m.NodeTime, set()),
        (traces.Why, critical.Why, set()),
        (traces.Piece, critical.Piece, set()),
        (traces.Bottleneck, critical.Bottleneck, set()),
        (traces.NodeFigures, statistics.NodeFigures, set()),
        (traces.Statistics, statistics.Statistics, set()),
    ],
)
def test_answers_have_the_fields_of_what_they_show(shown: Any, kind: Any, apart: set[str]) -> None:
    fields = getattr(kind, "_fields", None) or kind.__struct_fields__
    assert set(shown.__annotations__) ^ set(fields) == apart


def test_an_error_is_shown_whole() -> None:
    assert set(runs.Error.__annotations__) <= set(ErrorInfo.__struct_fields__)
    assert set(traces.TraceListed.__annotations__) - {"at"} <= set(RunTrace.model_fields)


def test_a_problem_is_what_its_schema_says() -> None:
    plain = problems.problem(422, "invalid_input", "no", faults=[problems.Fault("/a", "b", "c")])
    failed = problems.of_run(ErrorInfo(code="numeric_error", message="no", iteration=(1,)))
    for answer in (plain, failed):
        found = msgspec.json.decode(answer.body, type=Problem)
        assert set(msgspec.json.decode(answer.body)) <= set(Problem.__struct_fields__)
        assert found.status == answer.status_code
    assert msgspec.json.decode(failed.body, type=Problem).error is not msgspec.UNSET


def test_schemas_hold_no_references() -> None:
    found = schema_of(Trace)
    assert "$ref" not in str(found)
    assert found["properties"]["blocks"]["properties"]["kind"]["items"] == {"type": "integer"}
    assert set(found["properties"]) == set(Trace.__struct_fields__)


async def test_runs_of_a_service_of_another_version_are_listed(service: Running) -> None:
    error = '{"code":"of_another_version","message":"no","more":{"shape":[1]}}'
    row = Run(id="a" * 32, deployment="d", task="t", state="failed", created_at=1.0, error=error)
    await service.services.store.write(save_runs, [row])
    (shown,) = (await service.http.get("/api/v1/runs")).json()
    assert shown == (await service.http.get(f"/api/v1/runs/{row.id}")).json()
    assert shown["error"].items() >= msgspec.json.decode(error).items()
    assert (shown["error"]["iteration"], shown["paused"], shown["times"]) == ([], None, [])
