"""Nodes that call servers outside: what they say literally is checked, and never told again."""

from __future__ import annotations

from typing import Any

import pytest

from walkgraph.components import catalogue
from walkgraph.graph.check import check

VALUE = "sk-0123456789"


def found(component: str = "http.request", **params: Any) -> list[tuple[str, str, str]]:
    """(code, key, severity) of each problem of a node with these parameters."""
    defaults = {"url": "https://a.example"} if component == "http.request" else {"model": "m"}
    document = {
        "format": "walkgraph/graph@1",
        "name": "outside",
        "nodes": {"call": {"component": component, "params": {**defaults, **params}}},
        "walks": {
            "go": {
                "inputs": {"text": "text"},
                "body": ["call"],
                "edges": [["@in.text", "call.text"], ["call.text", "@out.text"]],
            }
        },
        "tasks": {
            "go": {
                "inputs": {"text": {"modality": "text"}},
                "outputs": ["text"],
                "params": {"said": {"type": "string", "default": ""}},
                "steps": [{"walk": "go", "with": {"text": "@task.text"}}],
            }
        },
    }
    problems = check(document, catalogue()).problems
    assert not any(VALUE in problem.message for problem in problems)
    nodes = [one for one in problems if one.pointer.startswith("/nodes")]
    return [(one.code, one.pointer.rpartition("/")[2], one.severity) for one in nodes]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"url": "=said", "headers": "=said"},
        {"headers": "X-A: b\n\nAuthorization: Bearer secret:weather"},
    ],
)
def test_a_sound_node_has_no_problem(params: dict[str, Any]) -> None:
    assert found(**params) == []


@pytest.mark.parametrize("url", ["a.example", "file:///x", f"https://u:{VALUE}@a.example/", "https://a.example/#x"])
def test_a_url_that_cannot_be_read_is_found(url: str) -> None:
    assert found(url=url) == [("bad_url", "url", "error")]
    assert found("openai.chat", base_url=url) == [("bad_url", "base_url", "error")]


@pytest.mark.parametrize("headers", ["no colon", ": x", "X-A:"])
def test_a_line_that_is_no_header_is_found(headers: str) -> None:
    assert found(headers=headers) == [("bad_header", "headers", "error")]


@pytest.mark.parametrize("name", ["Authorization", "cookie", "X-API-Key"])
def test_a_secret_in_a_header_is_a_warning(name: str) -> None:
    assert found(headers=f"{name}: {VALUE}") == [("plain_secret", "headers", "warning")]


def test_a_key_is_the_name_of_a_secret() -> None:
    server = {"base_url": "https://a.example/v1"}
    assert found("openai.chat", **server, key="secret:acme") == []
    assert found("openai.chat", **server, key="") == []
    assert found("openai.chat", **server, key=VALUE) == [("plain_secret", "key", "error")]
