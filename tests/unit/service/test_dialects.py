"""Each surface's clients read errors as they know them, whoever refuses: routes, validation, or the middleware."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.service.conftest import Running
from walkgraph.service.http import limits
from walkgraph.service.http.dialects import Fault, Said, dialect_of, openai_error, parameter, write


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/models", "openai"),
        ("/v1/chat/completions", "openai"),
        ("/v1/embeddings", "openai"),
        ("/v1/tasksx", "openai"),
        ("/v1/tasks", "native"),
        ("/v1/tasks/a/b", "native"),
        ("/v1/limits", "native"),
        ("/v1", "native"),
        ("/models", "openai"),
        ("/chat/completions", "openai"),
        ("/v2", "kserve"),
        ("/v2/models/a/infer", "kserve"),
        ("/v2x", "native"),
        ("/api/v1/runs", "native"),
        ("", "native"),
    ],
)
def test_paths(path: str, dialect: str) -> None:
    assert dialect_of(path) == dialect


@pytest.mark.parametrize(
    ("pointer", "name"),
    [
        ("", ""),
        ("/model", "model"),
        ("/messages/0/content/12/text", "messages[0].content[12].text"),
        ("/a~1b/c~0d", "a/b.c~d"),
        ("/0", "[0]"),
        ("/a/0/1", "a[0][1]"),
    ],
)
def test_parameters(pointer: str, name: str) -> None:
    assert parameter(pointer) == name


def error(*faults: Fault, **fields: Any) -> dict[str, Any]:
    said = Said(**{"status": 422, "code": "invalid_input", "detail": "see `errors`", "faults": faults, **fields})
    return openai_error(said)["error"]


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("missing", "missing_required_parameter"),
        ("extra_forbidden", "unknown_parameter"),
        ("bad_value", "invalid_value"),
        ("less_than_equal", "invalid_value"),
        ("float_type", "invalid_type"),
        ("unsupported_parameter", "unsupported_parameter"),
    ],
)
def test_codes(code: str, word: str) -> None:
    assert error(Fault("/top_p", code, "wrong"))["code"] == word


def test_sentences_name_what_they_are_about() -> None:
    assert error(Fault("/n", "x", "this is wrong"))["message"] == "`n`: this is wrong"
    assert error(Fault("/n", "x", "`n` is wrong"))["message"] == "`n` is wrong"
    assert error(Fault("/n", "x", "all is wrong"), detail="all is wrong")["message"] == "all is wrong"
    assert error(Fault("", "x", "all is wrong"))["param"] is None
    many = error(*(Fault(f"/p{i}", "x", "wrong") for i in range(6)))
    assert many["param"] == "p0"
    assert many["message"].count("wrong") == 4
    assert many["message"].endswith("and 2 more")


@pytest.mark.parametrize(
    ("status", "code", "openai", "kserve"),
    [
        (422, "invalid_input", 400, 400),
        (409, "refused", 400, 400),
        (409, "cancelled", 409, 409),
        (404, "not_found", 404, 404),
        (503, "overloaded", 503, 503),
    ],
)
def test_statuses(status: int, code: str, openai: int, kserve: int) -> None:
    said = Said(status=status, code=code, detail="why")
    assert write("/v1/chat/completions", said).status == openai
    assert write("/v2/models", said).status == kserve
    assert write("/api/v1/runs", said).status == status
    assert msgspec.json.decode(write("/v2/models", said).body) == {"error": "why"}


def test_who_may_try_again() -> None:
    again = write("/v1/models", Said(status=503, code="overloaded", detail="", retryable=True)).headers
    assert again == {"Retry-After": "1"}
    never = write("/v1/models", Said(status=503, code="overloaded", detail="")).headers
    assert never == {"x-should-retry": "false"}
    own = Said(status=429, code="limited", detail="", retryable=True, headers={"Retry-After": "7"})
    assert write("/v1/models", own).headers == {"Retry-After": "7"}


REFUSALS: tuple[tuple[str, str, dict[str, Any], int], ...] = (
    ("no token", "anybody", {"method": "POST", "json": {}}, 401),
    ("a foreign page", "http", {"method": "POST", "json": {}, "headers": {"Origin": "http://evil.example"}}, 403),
    ("a foreign name", "http", {"method": "POST", "json": {}, "headers": {"Host": "evil.example"}}, 421),
    ("a form", "http", {"method": "POST", "data": {"a": "b"}}, 415),
    ("no JSON", "http", {"method": "POST", "content": "{", "headers": {"Content-Type": "application/json"}}, 400),
    ("a wrong method", "http", {"method": "PUT", "json": {}}, 405),
    ("many headers", "http", {"method": "POST", "json": {}, "headers": {f"x-{i}": "y" for i in range(120)}}, 431),
    (
        "a large body",
        "http",
        {
            "method": "POST",
            "content": "{}",
            "headers": {"Content-Type": "application/json", "Content-Length": str(limits.BODY_BYTES + 1)},
        },
        413,
    ),
)


@pytest.mark.parametrize(("name", "who", "request_", "status"), REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_the_middleware_and_the_mapper_speak_openais(
    service: Running, name: str, who: str, request_: dict[str, Any], status: int
) -> None:
    answer = await getattr(service, who).request(url="/v1/chat/completions", **request_)
    assert answer.status_code == status, name
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert answer.headers["x-should-retry"] == "false"


async def test_an_unknown_path_is_told_in_its_dialect(service: Running) -> None:
    paths = ("/v1/nope", "/v2/nope/x", "/api/v1/nope", "/models")
    found = {path: (await service.http.get(path)).json() for path in paths}
    assert "there are `/v1/models`, `/v1/chat/completions`" in found["/v1/nope"]["error"]["message"]
    assert "ends with `/v1`" in found["/models"]["error"]["message"]
    assert found["/v1/nope"]["error"]["type"] == "invalid_request_error"
    assert isinstance(found["/v2/nope/x"]["error"], str)
    assert found["/api/v1/nope"]["type"] == "urn:walkgraph:problem:not-found"
