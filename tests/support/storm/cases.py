"""Cases that schemathesis makes from the document, as they are or laid over a request that is right."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.core import NOT_SET
from schemathesis.core.result import Ok

from tests.support.storm.judge import Ask
from tests.support.storm.known import FORM, RIGHT, Known, Right
from tests.unit.service.conftest import TOKEN

Manner = Literal["as made", "placed", "laid over"]
NEGATIVE = 0.2
"""Share of the generated requests that don't match the document."""
MANNERS: tuple[Manner, ...] = ("as made", "placed", "laid over", "laid over")
"""Making one costs more than asking, so each is sent four times: as it is, with a path that is known, and twice some of
its parts, drawn anew, over a request that is right."""
SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example)
TAKE_ANYTHING = ("POST /api/v1/graphs/check", "GET /api/v1/components/{name}")
HELD_BACK = {"hold"}
"""Parameters that make an answer wait for another client."""
BEARER = ("authorization", f"Bearer {TOKEN}")
HEADERS: tuple[tuple[str, str], ...] = (
    ("x-request-id", "mine-7"), ("x-request-id", "a\tb"), ("x-request-id", "x" * 65), ("x-request-id", "é"),
    ("idempotency-key", "once"), ("idempotency-key", "x" * 256), ("idempotency-key", "é"),
    ("accept", "text/event-stream"), ("accept", "image/png;q=2,*/*"), ("accept", ";;,q="),
    ("accept", "multipart/mixed"),
    ("traceparent", "00-0-0-0"), ("if-match", "*"), ("if-match", '"x"'), ("range", "bytes=0-"),
    ("inference-header-content-length", "-1"), ("inference-header-content-length", "9" * 9),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    label: str
    """`METHOD /path/{name}`."""
    method: str
    template: str
    made: Any
    """schemathesis'."""
    manner: Manner


def made(document: dict[str, Any], count: int, number: int) -> list[Case]:
    """At least `count` in all, as many of each operation that takes something, in no order."""
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    each = -(-count // len(MANNERS) // sum(operation.label in RIGHT for operation in operations))
    found: list[Case] = []
    for operation in operations:
        template = operation.label.partition(" ")[2]
        for mode, share in (("POSITIVE", 1 - NEGATIVE), ("NEGATIVE", NEGATIVE)):
            if mode == "NEGATIVE" and (operation.label not in RIGHT or operation.label in TAKE_ANYTHING):
                continue
            strategy = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])
            some = _some(strategy, max(int(each * share), 1), number)
            found.extend(
                Case(operation.label, operation.method.upper(), template, one, manner)
                for one in some
                for manner in MANNERS
            )
    random.Random(number).shuffle(found)
    return found


def _some(strategy: Any, count: int, number: int) -> list[Any]:
    found: list[Any] = []

    @seed(number)
    @given(strategy)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=SLOW,
    )
    def collect(case: Any) -> None:
        found.append(case)

    collect()
    return found


def fitted(case: Case, known: Known) -> Right:
    """The request that is sent for it."""
    one, dice = case.made, known.dice
    body = None if one.body is NOT_SET else one.body
    asked = Right(dict(one.path_parameters or {}), body, one.media_type, dict(one.query or {}))
    # What it takes out of the pools is gone, so it is only asked where it is sent.
    right = RIGHT[case.label](known) if case.label in RIGHT and case.manner != "as made" else Right()
    if case.manner != "as made":
        asked.path = right.path
    # Without names in its path it would be sent twice as it is.
    if case.manner == "laid over" or (case.manner == "placed" and not right.path):
        asked.query = {**_few(asked.query, dice), **right.query}
        laid_over = isinstance(right.body, dict) and isinstance(body, dict) and asked.kind == (right.kind or asked.kind)
        if not laid_over or dice.random() < 0.3:
            asked.body = right.body
        else:
            asked.body = {**right.body, **_few(body, dice)}
        asked.kind = right.kind or (None if right.body is None else "application/json")
    asked.headers = dict(right.headers) if dice.random() < 0.7 else dict([dice.choice(HEADERS)])
    _unhurried(asked, case.label)
    return asked


def _few(values: Any, dice: random.Random) -> dict[str, Any]:
    if not isinstance(values, dict):
        return {}
    names = dice.sample(list(values), min(dice.randint(0, 2), len(values)))
    return {name: values[name] for name in names}


def _unhurried(asked: Right, label: str) -> None:
    """Nothing waits: for a later revision, or for somebody who steers."""
    if "wait" in asked.query or "after" in asked.query:
        asked.query = {"wait": 0, **asked.query, **({"wait": 0} if _number(asked.query.get("wait")) else {})}
    if label == "POST /v1/tasks/{deployment}/{task}" and isinstance(asked.body, dict):
        asked.body = {name: value for name, value in asked.body.items() if name not in HELD_BACK}


def _number(value: Any) -> bool:
    try:
        return float(value) >= 0
    except (TypeError, ValueError):
        return False


# ── as a client sends it ────────────────────────────────────────────────────────────────────────


def sent(case: Case, asked: Right) -> Ask:
    path = case.template
    for name, value in asked.path.items():
        path = path.replace(f"{{{name}}}", quote(str(value), safe="", errors="replace"))
    query = urlencode(list(_pairs(asked.query)), errors="replace")
    kind, body = _written(asked)
    headers = [BEARER, *((name, value) for name, value in asked.headers.items())]
    if kind is not None:
        headers.append(("content-type", kind))
    return Ask(case.method, f"{path}?{query}" if query else path, tuple(headers), body)


def _pairs(query: Any) -> Iterator[tuple[str, str]]:
    for name, value in dict(query).items():
        for one in value if isinstance(value, list) else [value]:
            yield str(name), one if isinstance(one, str) else json.dumps(one, default=str)


def _written(asked: Right) -> tuple[str | None, bytes]:
    if asked.body is None and asked.kind is None:
        return None, b""
    if asked.kind == FORM and isinstance(asked.body, dict):
        return f"{FORM}; boundary=bound", b"".join(_parts(asked.body)) + b"--bound--\r\n"
    if isinstance(asked.body, bytes):
        return asked.kind or "application/octet-stream", asked.body
    kind = asked.kind if asked.kind not in (None, FORM) else "application/json"
    # A body that can't be written as JSON isn't a client's.
    return kind, json.dumps(asked.body, default=str).encode()


def _parts(fields: dict[str, Any]) -> Iterator[bytes]:
    for name, value in fields.items():
        for one in value if isinstance(value, list) and name.endswith("[]") else [value]:
            data = one if isinstance(one, bytes) else (one if isinstance(one, str) else json.dumps(one, default=str))
            data = data.encode("utf-8", "replace") if isinstance(data, str) else data
            plain = quote(str(name), safe="[]_-", errors="replace")
            file = (
                '; filename="file.png"\r\nContent-Type: image/png'
                if data is not None and b"\x89PNG" in data[:8]
                else ""
            )
            yield f'--bound\r\nContent-Disposition: form-data; name="{plain}"{file}\r\n\r\n'.encode() + data + b"\r\n"
