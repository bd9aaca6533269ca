"""The possible results of an expression before a run: its type and bounds, from those of the parameters it reads."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from walkgraph.graph.catalogue import Param, ParamKind, Scalar
from walkgraph.graph.conversation import TURN_VALUES
from walkgraph.graph.document import TaskParam
from walkgraph.graph.language import syntax
from walkgraph.graph.language.expressions import Expr
from walkgraph.graph.language.float32 import float32
from walkgraph.graph.problems import article, nearest

_INF = math.inf
_LARGEST = 3.4028234663852886e38
"""The largest float32 number."""


@dataclass(frozen=True, slots=True)
class Range:
    """A type and, for numbers, inclusive bounds that hold for every possible value."""

    kind: ParamKind
    low: float = -_INF
    high: float = _INF


BOOLEAN = Range("boolean")
STRING = Range("string")
INDEX = Range("integer", 0)
SEED = Range("integer", 0, 2**63 - 1)
TURN_RANGES = {name: INDEX if kind == "integer" else Range(kind) for name, kind in TURN_VALUES.items()}


def range_of(param: TaskParam | Param) -> Range:
    low = -_INF if param.min is None else param.min
    high = _INF if param.max is None else param.max
    return Range(param.type, low, high)


def range_of_value(value: Scalar) -> Range:
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return STRING
    return Range("integer" if isinstance(value, int) else "number", value, value)


def value_fault(value: Scalar, param: TaskParam | Param) -> str | None:
    """The reason that a literal does not fit a parameter; None if it fits."""
    found = range_of_value(value)
    if found.kind != param.type and (found.kind, param.type) != ("integer", "number"):
        return f"is {article(param.type)}, not {article(found.kind)}; write {article(param.type)}"
    if param.choices and value not in param.choices:
        return f"is not one of the choices; {nearest(str(value), map(str, param.choices))}"
    if not isinstance(value, str):
        if param.min is not None and value < param.min:
            return f"must be at least {param.min:g}; raise it"
        if param.max is not None and value > param.max:
            return f"must be at most {param.max:g}; lower it"
    return None


def infer(expr: Expr, params: Mapping[str, Range]) -> Range:
    """Type and bounds of an expression whose names are all in `params`; raises ExpressionError where types clash."""
    return _infer(expr.tree, params)


def _infer(tree: syntax.Syntax, params: Mapping[str, Range]) -> Range:
    match tree:
        case syntax.Const():
            return range_of_value(tree.value)
        case syntax.Param():
            return params[tree.name]
        case syntax.LoopIndex():
            return INDEX
        case syntax.Unary(op="not"):
            _want_boolean(_infer(tree.operand, params), "not", tree.at)
            return BOOLEAN
        case syntax.Unary():
            inner = _number(_infer(tree.operand, params), "-", tree.at)
            return Range(inner.kind, -inner.high, -inner.low)
        case syntax.Binary(op="and" | "or"):
            for side in (tree.left, tree.right):
                _want_boolean(_infer(side, params), tree.op, tree.at)
            return BOOLEAN
        case syntax.Binary():
            left = _number(_infer(tree.left, params), tree.op, tree.at)
            return _arithmetic(tree.op, left, _number(_infer(tree.right, params), tree.op, tree.at))
        case syntax.Compare():
            return _compare(tree, params)
        case syntax.Call():
            arguments = [_number(_infer(a, params), tree.function, tree.at) for a in tree.arguments]
            return _call(tree.function, arguments)


def _number(found: Range, op: str, at: int) -> Range:
    if found.kind in ("boolean", "string"):
        raise syntax.ExpressionError(f"`{op}` takes numbers, not {article(found.kind)}", at)
    return found


def _want_boolean(found: Range, op: str, at: int) -> None:
    if found.kind != "boolean":
        raise syntax.ExpressionError(f"`{op}` takes true or false, not {article(found.kind)}; compare first", at)


def _compare(tree: syntax.Compare, params: Mapping[str, Range]) -> Range:
    sides = [_infer(tree.first, params), *(_infer(right, params) for _, right in tree.rest)]
    for (left, right), (op, _) in zip(pairwise(sides), tree.rest, strict=True):
        if op in ("==", "!=") and _family(left) == _family(right):
            continue
        if op in ("==", "!="):
            raise syntax.ExpressionError(
                f"`{op}` compares {article(left.kind)} with {article(right.kind)}; compare like with like", tree.at
            )
        _number(left, op, tree.at)
        _number(right, op, tree.at)
    return BOOLEAN


def _family(found: Range) -> str:
    return found.kind if found.kind in ("boolean", "string") else "number"


def _arithmetic(op: str, a: Range, b: Range) -> Range:
    kind: ParamKind = "integer" if a.kind == b.kind == "integer" and op != "/" else "number"
    match op:
        case "+":
            return Range(kind, a.low + b.low, a.high + b.high)
        case "-":
            return Range(kind, a.low - b.high, a.high - b.low)
        case "*":
            return _corners(kind, [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)])
        case "%" if 0 < b.low <= b.high:
            return Range(kind, 0, b.high)
        case "/" | "//" if 0 < b.low <= b.high:
            found = _corners(kind, [_over(x, y) for x in (a.low, a.high) for y in (b.low, b.high)])
            return Range(kind, _floor(found.low), _floor(found.high)) if op == "//" else found
        case _:
            return Range(kind)


def _corners(kind: ParamKind, values: list[float]) -> Range:
    return Range(kind, min(values), max(values))


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _over(a: float, b: float) -> float:
    return 0 if math.isinf(b) else a / b


def _floor(value: float) -> float:
    return value if math.isinf(value) else math.floor(value)


def _ceil(value: float) -> float:
    return value if math.isinf(value) else math.ceil(value)


def _single(value: float) -> float:
    return float32(value) if abs(value) <= _LARGEST else math.copysign(_INF, value)


def _call(function: str, arguments: list[Range]) -> Range:
    first = arguments[0]
    match function:
        case "min" | "max":
            choose = min if function == "min" else max
            kind: ParamKind = "integer" if all(a.kind == "integer" for a in arguments) else "number"
            return Range(kind, choose(a.low for a in arguments), choose(a.high for a in arguments))
        case "abs":
            ends = sorted((abs(first.low), abs(first.high)))
            return Range(first.kind, 0 if first.low <= 0 <= first.high else ends[0], ends[1])
        case "ceil":
            return Range("integer", _ceil(first.low), _ceil(first.high))
        case "floor":
            return Range("integer", _floor(first.low), _floor(first.high))
        case "round":
            return Range("integer", _floor(first.low), _ceil(first.high))
        case "float32":
            return Range("number", _single(first.low), _single(first.high))
        case _:  # flow_time, for an index within its steps; overshoot of 1 by rounding is ignored
            return Range("number", 0, 1) if arguments[2].low > 0 else Range("number")
