"""Expressions for `times`, `when`, `width`, `capacity` and `"=..."` parameters: parsed, never evaluated as code.

The grammar is in `graph.language.syntax`. Evaluation is total: an expression without a finite value raises
`ExpressionError` with the place in the text. `and` and `or` short-circuit. Each tree is compiled once to nested
closures, because the worker evaluates a `when` for every use of every iteration.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, NoReturn

from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.language.syntax import (
    FUNCTIONS,
    INT_LIMIT,
    Binary,
    Call,
    Compare,
    Const,
    ExpressionError,
    LoopIndex,
    Param,
    Syntax,
    Unary,
    literal,
    parts,
    read,
    rename_loop,
    spell,
)

__all__ = ["Expr", "ExpressionError", "constant", "evaluate", "name_innermost", "parse", "source"]

Run = Callable[[Mapping[str, Scalar], Mapping[str, int]], Scalar]


@dataclass(frozen=True)
class Expr:
    """A parsed expression; equal to any other with the same meaning, whatever its spaces and parentheses."""

    tree: Syntax
    text: str = field(compare=False)
    """The author's spelling."""
    names: frozenset[str] = field(compare=False)
    """Parameters it reads."""
    loops: frozenset[str] = field(compare=False)
    """Loops whose index it reads; `index` is the innermost."""
    run: Run = field(compare=False, repr=False)


@lru_cache(maxsize=4096)
def parse(text: str) -> Expr:
    """Read one expression; raises ExpressionError with position and advice."""
    tree = read(text)
    found = parts(tree)
    names = frozenset(p.name for p in found if isinstance(p, Param))
    loops = frozenset(p.loop for p in found if isinstance(p, LoopIndex))
    return Expr(tree, text, names, loops, _compile(tree))


def evaluate(expr: Expr, params: Mapping[str, Scalar], loops: Mapping[str, int] | None = None) -> Scalar:
    """The value for these parameters and loop indices (`index` and the loops' names); raises ExpressionError."""
    value = expr.run(params, loops or _NO_LOOPS)
    if value.__class__ is int and not -INT_LIMIT <= value <= INT_LIMIT:  # type: ignore[operator]
        raise ExpressionError("the result does not fit 64 bits; use smaller values", expr.tree.at)
    return value


_NO_LOOPS: Mapping[str, int] = {}


def constant(expr: Expr) -> Scalar | None:
    """The value of an expression that reads no parameter and no loop; None for any other."""
    return None if expr.names or expr.loops else expr.run({}, {})


def source(expr: Expr) -> str:
    """The canonical spelling; parses to an equal expression."""
    return spell(expr.tree)


def name_innermost(text: str, loop: str) -> str:
    """The same expression with `@loop.index` spelled `@loop.LOOP`, so that it can stand inside further loops."""
    expr = parse(text)
    return spell(rename_loop(expr.tree, "index", loop)) if "index" in expr.loops else text


# ── tree -> closures ────────────────────────────────────────────────────────────────────────────

_NUMBERS = frozenset({int, float})
_LARGEST = 1.7976931348623157e308
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": operator.mod,
}
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compile(tree: Syntax) -> Run:
    run = _closure(tree)
    if isinstance(tree, Const) or any(isinstance(part, Param | LoopIndex) for part in parts(tree)):
        return run
    value = run({}, {})
    return lambda params, loops: value


def _closure(tree: Syntax) -> Run:
    match tree:
        case Const():
            value = tree.value
            return lambda params, loops: value
        case Param():
            return _param(tree.name, tree.at)
        case LoopIndex():
            return _loop(tree.loop, tree.at)
        case Unary(op="not"):
            return _not(_compile(tree.operand), tree.at)
        case Unary():
            return _arithmetic("-", lambda params, loops: 0, _compile(tree.operand), tree.at)
        case Binary(op="and" | "or"):
            return _logic(tree.op == "or", _compile(tree.left), _compile(tree.right), tree.at)
        case Binary():
            return _arithmetic(tree.op, _compile(tree.left), _compile(tree.right), tree.at)
        case Compare():
            return _comparison(_compile(tree.first), tree.rest, tree.at)
        case Call():
            return _call(tree.function, tuple(_compile(a) for a in tree.arguments), tree.at)


def _param(name: str, at: int) -> Run:
    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        try:
            return params[name]
        except KeyError:
            raise ExpressionError(f"there is no parameter `{name}` here", at) from None

    return run


def _loop(name: str, at: int) -> Run:
    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        try:
            return loops[name]
        except KeyError:
            raise ExpressionError(f"`@loop.{name}` has no value outside its loop", at) from None

    return run


def _arithmetic(op: str, left: Run, right: Run, at: int) -> Run:
    apply = _ARITHMETIC[op]

    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        a, b = left(params, loops), right(params, loops)
        if a.__class__ not in _NUMBERS or b.__class__ not in _NUMBERS:
            _refuse(f"`{op}`", "numbers", at, a, b)
        try:
            value = apply(a, b)
        except ArithmeticError:
            raise ExpressionError(f"`{op}` has no finite value here; make sure that the divisor is not 0", at) from None
        if -_LARGEST <= value <= _LARGEST:
            return value
        raise ExpressionError(f"`{op}` overflows here; use smaller values", at)

    return run


def _comparison(first: Run, rest: tuple[tuple[str, Syntax], ...], at: int) -> Run:
    links = tuple((op in _ORDER, _ORDER.get(op, operator.eq), op == "!=", _compile(right)) for op, right in rest)

    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        a = first(params, loops)
        for ordered, holds, negated, right in links:
            b = right(params, loops)
            if a.__class__ not in _NUMBERS or b.__class__ not in _NUMBERS:
                if ordered:
                    _refuse("a comparison", "numbers", at, a, b)
                if a.__class__ is not b.__class__:
                    _refuse("`==`", "values of one type", at, a, b)
            if holds(a, b) is negated:
                return False
            a = b
        return True

    return run


def _logic(stop: bool, left: Run, right: Run, at: int) -> Run:
    op = "or" if stop else "and"

    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        a = left(params, loops)
        if a is stop:
            return stop
        b = right(params, loops)
        if a.__class__ is not bool or b.__class__ is not bool:
            _refuse(f"`{op}`", "true or false; compare first", at, a, b)
        return b

    return run


def _not(operand: Run, at: int) -> Run:
    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        a = operand(params, loops)
        if a.__class__ is not bool:
            _refuse("`not`", "true or false; compare first", at, a)
        return not a

    return run


def _call(name: str, arguments: tuple[Run, ...], at: int) -> Run:
    apply = FUNCTIONS[name][2]

    def run(params: Mapping[str, Scalar], loops: Mapping[str, int]) -> Scalar:
        values = [argument(params, loops) for argument in arguments]
        for value in values:
            if value.__class__ not in _NUMBERS:
                _refuse(f"`{name}`", "numbers", at, value)
        try:
            value = apply(*values)
        except ArithmeticError:
            advice = "it needs two steps or more and a positive shift" if name == "flow_time" else "use smaller values"
            raise ExpressionError(f"`{name}` has no finite value here; {advice}", at) from None
        if -_LARGEST <= value <= _LARGEST:
            return value
        raise ExpressionError(f"`{name}` overflows here; use smaller values", at)

    return run


def _refuse(what: str, wanted: str, at: int, *values: Scalar) -> NoReturn:
    found = reduce(lambda text, value: f"{text} and {literal(value)}", values[1:], literal(values[0]))
    raise ExpressionError(f"{what} takes {wanted}; found {found[:80]}", at)
