"""Keyword-only arguments as parameters of a node: kind, default, bounds, choices."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import cast

from walkgraph.functions.annotations import Hint, generic, resolved, texts
from walkgraph.graph.catalogue import Param, ParamKind, Scalar

_KINDS: dict[str, ParamKind] = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}
_TYPES: dict[ParamKind, tuple[type, ...]] = {
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "string": (str,),
}
_BETWEEN = "walkgraph.nodes.Between"
_SEED = "walkgraph.nodes.Seed"


def is_seed(given: Hint) -> bool:
    return given.source.dotted(given.expression) == _SEED


def parameter(given: Hint, default: ast.expr | None) -> Param:
    """Raises Unreadable for a type that no parameter has, and for a default that breaks its own rules."""
    found = _of_type(given)
    if default is None:
        return found
    try:
        value = given.source.literal(default)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise given.wrong(
            f"has the default `{ast.unparse(default)}`; the file is only read, so write the value itself"
        ) from None
    if not isinstance(value, (bool, int, float, str)) or not _fits(found.type, value):
        raise given.wrong(f"has the default `{ast.unparse(default)}`, which is no {found.type}")
    if found.type == "number":
        value = float(value)
    if found.choices and value not in found.choices:
        raise given.wrong(f"has the default `{value}`, which is none of its choices")
    number = value if isinstance(value, (int, float)) else 0
    if (found.min is not None and number < found.min) or (found.max is not None and number > found.max):
        raise given.wrong(f"has the default `{value}`, outside its own bounds")
    return replace(found, default=value)


def _fits(kind: ParamKind, value: Scalar) -> bool:
    return isinstance(value, _TYPES[kind]) and isinstance(value, bool) == (kind == "boolean")


def _of_type(given: Hint) -> Param:
    given = resolved(given)
    base, inside = generic(given)
    if base == "Annotated" and len(inside) > 1:
        found = _of_type(given.inner(inside[0]))
        for one in inside[1:]:
            found = _bounded(given, found, one)
        return replace(found, description=" ".join(texts(given, inside[1:])))
    if base == "Literal":
        return _choice(given, inside)
    if base in _KINDS:
        return Param(type=_KINDS[base])
    if isinstance(given.expression, ast.BinOp) or base in ("Optional", "Union"):
        raise given.wrong("is a parameter and may be of several types; a parameter always has one value of one type")
    raise given.wrong(
        f"is a parameter of the type `{ast.unparse(given.expression)}`; parameters are `float`, `int`, `bool`, `str` "
        "or a `Literal`. If it comes by a wire, put it before the `*`"
    )


def _choice(given: Hint, inside: list[ast.expr]) -> Param:
    values: list[object] = []
    for one in inside:
        try:
            values.append(given.source.literal(one))
        except (ValueError, TypeError):
            raise given.wrong(f"has the choice `{ast.unparse(one)}`; choices are texts or numbers") from None
    for kind in ("boolean", "integer", "string"):
        if values and all(isinstance(value, (bool, int, str)) and _fits(kind, value) for value in values):
            return Param(type=kind, choices=tuple(cast("list[Scalar]", values)))
    raise given.wrong("has choices of different types; make all of them texts, or all whole numbers")


def _bounded(given: Hint, found: Param, extra: ast.expr) -> Param:
    if not isinstance(extra, ast.Call) or given.source.dotted(extra.func) != _BETWEEN:
        if isinstance(extra, ast.Constant) and isinstance(extra.value, str):
            return found
        raise given.wrong(
            f"has `{ast.unparse(extra)}` behind its type; bounds are written `Between(0, 1)`, from `walkgraph.nodes`"
        )
    if found.type not in ("number", "integer"):
        raise given.wrong("has bounds, which only numbers have")
    names = {keyword.arg: keyword.value for keyword in extra.keywords}
    ends = dict(zip(("low", "high"), extra.args, strict=False)) | names
    low, high = (_end(given, ends.get(name)) for name in ("low", "high"))
    if len(extra.args) > 2 or set(ends) - {"low", "high"} or (low is None and high is None):
        raise given.wrong("has bounds that can't be read; write `Between(0, 1)`, or `Between(low=0)`")
    if low is not None and high is not None and low > high:
        raise given.wrong(f"has bounds the wrong way round: `{ast.unparse(extra)}`")
    return replace(found, min=low, max=high)


def _end(given: Hint, expression: ast.expr | None) -> float | None:
    if expression is None:
        return None
    try:
        value = given.source.literal(expression)
    except (ValueError, TypeError):
        value = ""
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise given.wrong(f"has the bound `{ast.unparse(expression)}`, which is no number")
    return value
