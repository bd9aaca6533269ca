"""Request bodies: bounded, strict JSON. `parse` is the only way from a caller's bytes to a value."""

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute

from walkgraph.errors import InvalidInput
from walkgraph.service.http import limits


class BadJson(InvalidInput):
    """The body is not JSON that this service reads."""


class BadForm(InvalidInput):
    """The body is not a form that this service reads."""


class BodyTooLarge(InvalidInput):
    pass


class SlowBody(InvalidInput):
    """The body did not arrive in time."""


class StrictRoute(APIRoute):
    """Parses a JSON body strictly before FastAPI reads it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def read_then_handle(request: Request) -> Response:
            strict = _StrictRequest(request.scope, request.receive)
            await strict.read()
            return await handle(strict)

        return read_then_handle


class _StrictRequest(Request):
    _value: Any = None

    async def read(self) -> None:
        data = await self.body()
        if not data:
            raise BadJson("the body is empty; send a JSON object")
        self._value = parse(data)

    async def json(self) -> Any:
        return self._value


def parse(data: bytes | str, max_bytes: int = limits.BODY_BYTES) -> Any:
    """Parses a JSON text. Raises BadJson if it is not plain JSON, BodyTooLarge if it exceeds a limit."""
    if len(data) > max_bytes:
        raise BodyTooLarge(f"the JSON has {len(data)} bytes and may have {max_bytes}")
    raw = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    # An upper bound on the number of values: commas inside strings count too.
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > limits.JSON_VALUES:
        raise BodyTooLarge(f"the JSON has more than {limits.JSON_VALUES} values; split it up")
    try:
        value = json.loads(
            raw.decode("utf-8").removeprefix("\ufeff"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
    except UnicodeDecodeError as error:
        raise BadJson(f"the body is not UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise BadJson(f"the body is not JSON: see line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise BadJson(f"the JSON is nested more than {limits.JSON_DEPTH} deep; flatten it") from None
    _inspect(value)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadJson("a key stands twice in one object; keep one")
    return found


def _integer(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise BadJson("an integer does not fit 64 bits; send a smaller one")
    return int(text)


def _float(text: str) -> float:
    number = float(text) if len(text) <= 400 else math.inf
    if not math.isfinite(number):
        raise BadJson("a number is too large or too long; send a smaller one")
    return number


def _constant(_text: str) -> NoReturn:
    raise BadJson("NaN and Infinity are not JSON numbers; send finite ones")


def _inspect(value: Any) -> None:
    """Checks the depth, and that every string can be encoded again."""
    level: list[Any] = [value]
    for _ in range(limits.JSON_DEPTH + 1):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, list):
                inner.extend(cast(list[Any], item))
            elif isinstance(item, dict):
                members = cast(dict[str, Any], item)
                for key in members:
                    _check_text(key)
                inner.extend(members.values())
        if not inner:
            return
        level = inner
    raise BadJson(f"the JSON is nested more than {limits.JSON_DEPTH} deep; flatten it")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadJson("a text has half of a character (a lone surrogate); write it anew") from None
