"""Builds JSON of values, reads it, and picks values out of it. Clients may send any text."""

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, NoReturn, Self, cast

from torch import Tensor

from walkgraph.abi.calls import Call, Outputs, plain_text
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.architectures.plain.values import INTEGERS, MOST_WRITTEN, bounded, few, invalid, lists, shortest
from walkgraph.graph.language.literals import Step, path_of, steps_of
from walkgraph.graph.language.shaping import listed_ports

_WHOLE = 2**53
"""Whole floats below this are written without a decimal point."""
_KIND = {dict: "an object", list: "a list", str: "a text", bool: "a flag", int: "a number", float: "a number"}


class Build(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": self._built(call)} for call in calls]

    def _built(self, call: Call) -> str:
        nested = {name.strip() for name in str(call.params["nested"]).split(",")}
        ports = listed_ports(str(call.params["ports"]))
        names = [port.name for port in ports]
        single = {port.name for port in ports if port.type is not None and port.type.modality in ("scalar", "flag")}
        texts = [value for value in call.inputs.values() if isinstance(value, str)]
        bounded(call, names[0] if names else "", sum(map(len, texts)))
        found: dict[str, Any] = {}
        for name, value in call.inputs.items():
            if name in nested:
                found[name] = read(call, name, str(value))
            else:
                # A scalar of a request is a tensor `[1]`.
                one = isinstance(value, Tensor) and value.numel() == 1 and name in single
                found[name] = _plain(call, name, value.reshape(()) if one else value)
        found = {name: found[name] for name in names if name in found}
        text = _short(found)
        bounded(call, names[0] if names else "", len(text))
        return text


class Read(Operator):
    pure: ClassVar[bool] = True

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [{"text": _short(self._read(call))} for call in calls]

    def _read(self, call: Call) -> Any:
        text = call.text("text")
        return search(call, "text", text) if call.params["search"] else read(call, "text", text)


class Pick(Operator):
    options: ClassVar[tuple[str, ...]] = ("path", "type")
    pure: ClassVar[bool] = True

    def __init__(self, path: Sequence[Step], kind: str) -> None:
        self._path, self._kind = path, kind

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(steps_of(str(context.options.get("path", ""))), str(context.options.get("type", "text")))

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        return [self._picked(call) for call in calls]

    def _picked(self, call: Call) -> Outputs:
        value = _parsed(call, "text", call.text("text"))
        for count, step in enumerate(self._path, 1):
            value = _inside(value, step)
            if value is _NOTHING:
                if call.params["missing"] == "absent":
                    return {}
                raise invalid(call, "text", f"finds nothing at `{path_of(self._path[:count])}`")
        return {"value": self._as(call, value)}

    def _as(self, call: Call, value: Any) -> Any:
        match self._kind:
            case "text":
                return _written(value)
            case "scalar" if isinstance(value, float) or (type(value) is int and value in INTEGERS):
                return value
            case "flag" if isinstance(value, bool):
                return value
            case "list of text" if isinstance(value, list):
                found = cast("list[Any]", value)
                few(call, "text", len(found))
                return [_written(item) for item in found]
            case kind:
                what = _KIND.get(type(value), "null")
                raise invalid(call, "text", f"takes a {kind} at `{path_of(self._path)}`, and finds {what}")


def read(call: Call, port: str, text: str) -> Any:
    """The value that a text is as JSON."""
    try:
        return _DECODER.decode(plain_text(text))
    except json.JSONDecodeError as error:
        told = f"can't read JSON at line {error.lineno}, column {error.colno}: {_advice(error)}"
        raise invalid(call, port, told) from None
    except RecursionError:
        raise invalid(call, port, "reads JSON that is not nested so deep") from None
    except _Refused as error:
        raise invalid(call, port, f"can't read JSON: {error.args[0]}") from None
    except ValueError:
        raise invalid(call, port, "can't read JSON: a number has too many digits") from None


def search(call: Call, port: str, text: str) -> Any:
    """The first object or array in a text."""
    plain = plain_text(text)
    tried = 0
    for match in re.finditer(r"[\[{]", plain):
        tried += 1
        if tried > _MOST_TRIES:
            break
        try:
            return _DECODER.raw_decode(plain, match.start())[0]
        except (ValueError, RecursionError):
            continue
    raise invalid(call, port, "finds no JSON object or array in the text")


class _Refused(ValueError):
    """A constant that JSON doesn't have."""


def _constant(name: str) -> NoReturn:
    raise _Refused(f"`{name}` is not a number in JSON")


def _float(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise _Refused(f"`{digits[:32]}` is too large")
    return found


_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float)
_MOST_TRIES = 100
"""Places where JSON may begin in a text; each is read once."""
_NOTHING: Any = object()


@lru_cache(maxsize=8)
def _loaded(text: str) -> Any:
    return _DECODER.decode(text)


def _parsed(call: Call, port: str, text: str) -> Any:
    """As `read`; a text that several nodes pick from is read once. The value must not be changed."""
    if len(text) > _KEPT:
        return read(call, port, text)
    try:
        return _loaded(text)
    except (ValueError, RecursionError):
        return read(call, port, text)


_KEPT = 1 << 16
"""The longest text whose value is kept."""


def _advice(error: json.JSONDecodeError) -> str:
    """The parser's expectation, in its own closed set of words."""
    return error.msg[:1].lower() + error.msg[1:]


def _inside(value: Any, step: Step) -> Any:
    if isinstance(step, str) and isinstance(value, dict):
        return cast("dict[str, Any]", value).get(step, _NOTHING)
    if isinstance(step, int) and isinstance(value, list):
        found = cast("list[Any]", value)
        return found[step] if -len(found) <= step < len(found) else _NOTHING
    return _NOTHING


def _plain(call: Call, port: str, value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, list | tuple):
        found = cast("Sequence[Any]", value)
        few(call, port, len(found))
        return [_plain(call, port, item) for item in found]
    if isinstance(value, Tensor) and value.dim():
        if value.numel() > MOST_WRITTEN:
            raise invalid(call, port, f"writes tensors of at most {MOST_WRITTEN} numbers; `{port}` has {value.numel()}")
        return lists(value)
    single = shortest(value)
    if single is None or not math.isfinite(single):
        raise invalid(call, port, f"can't write the value at `{port}` as JSON; it takes texts, numbers, flags, tensors")
    whole = isinstance(single, float) and single.is_integer() and abs(single) < _WHOLE
    return int(single) if whole else single


def _written(value: Any) -> str:
    return plain_text(value) if isinstance(value, str) else _short(value)


def _short(value: Any) -> str:
    return plain_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
