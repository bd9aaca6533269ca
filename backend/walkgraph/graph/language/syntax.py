"""The closed grammar of expressions: text -> syntax tree -> text. `graph.language.expressions` gives them their
meaning.

    or            a or b
    and           a and b
    not           not a
    comparison    a < b <= c, a == b, a != b            chains as in mathematics
    sum           a + b, a - b
    product       a * b, a / b, a // b, a % b
    sign          -a
    atom          12, 0.5, 1e-3, 'text', true, false, name, @loop.index, @loop.NAME, @turn.x, f(a, b), (a)

Functions: `min`, `max` (two or more arguments), `abs`, `ceil`, `floor`, `round` (half to even), `float32(x)`, the
nearest number of single precision, and `flow_time(i, steps, shift)`, the i-th of `steps` timesteps from 1 to 0,
shifted: s*t / (1 + (s-1)*t) with t = 1 - i/(steps-1), in single precision. Compare it with `float32(bound)`.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from walkgraph.errors import InvalidInput
from walkgraph.graph.catalogue import Scalar
from walkgraph.graph.language.float32 import float32, flow_time

MAX_LENGTH = 400
MAX_DEPTH = 48
"""The most levels of the syntax tree, and of open parentheses."""
RESERVED = frozenset({"and", "or", "not", "true", "false"})
INT_LIMIT = 2**63 - 1


def can_be_named(name: str) -> bool:
    """True if an expression can read a parameter of this name."""
    return "-" not in name and name not in RESERVED


class ExpressionError(InvalidInput):
    """A faulty expression. `position` counts characters from 0; the message gives the column from 1."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (column {position + 1})")
        self.position = position


# ── the syntax tree ─────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Const:
    kind: str
    """Name of the Python type: separates 1, 1.0 and true, which are equal in Python."""
    value: Scalar
    at: int = field(compare=False)


@dataclass(frozen=True)
class Param:
    name: str
    at: int = field(compare=False)


@dataclass(frozen=True)
class LoopIndex:
    loop: str
    """`index` means the innermost loop."""
    at: int = field(compare=False)


@dataclass(frozen=True)
class Unary:
    op: Literal["-", "not"]
    operand: "Syntax"
    at: int = field(compare=False)


@dataclass(frozen=True)
class Binary:
    op: Literal["+", "-", "*", "/", "//", "%", "and", "or"]
    left: "Syntax"
    right: "Syntax"
    at: int = field(compare=False)


@dataclass(frozen=True)
class Compare:
    first: "Syntax"
    rest: tuple[tuple[str, "Syntax"], ...]
    at: int = field(compare=False)


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple["Syntax", ...]
    at: int = field(compare=False)


Syntax = Const | Param | LoopIndex | Unary | Binary | Compare | Call


def parts(tree: Syntax) -> list[Syntax]:
    """Every part of the tree, the whole tree first."""
    found: list[Syntax] = [tree]
    for part in found:
        found.extend(children(part))
    return found


def children(tree: Syntax) -> tuple[Syntax, ...]:
    match tree:
        case Unary():
            return (tree.operand,)
        case Binary():
            return (tree.left, tree.right)
        case Compare():
            return (tree.first, *(right for _, right in tree.rest))
        case Call():
            return tree.arguments
        case _:
            return ()


def with_leaves(tree: Syntax, change: Callable[[Syntax], Syntax]) -> Syntax:
    """The tree with every part that has no parts replaced by what `change` makes of it."""
    match tree:
        case Unary():
            return replace(tree, operand=with_leaves(tree.operand, change))
        case Binary():
            return replace(tree, left=with_leaves(tree.left, change), right=with_leaves(tree.right, change))
        case Compare():
            rest = tuple((op, with_leaves(right, change)) for op, right in tree.rest)
            return replace(tree, first=with_leaves(tree.first, change), rest=rest)
        case Call():
            return replace(tree, arguments=tuple(with_leaves(one, change) for one in tree.arguments))
        case _:
            return change(tree)


def rename_loop(tree: Syntax, old: str, new: str) -> Syntax:
    def changed(leaf: Syntax) -> Syntax:
        return replace(leaf, loop=new) if isinstance(leaf, LoopIndex) and leaf.loop == old else leaf

    return with_leaves(tree, changed)


# ── text -> tree ────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<string>'[^'\n]*')
      | (?P<loop>@loop\.[A-Za-z][A-Za-z0-9_]*)
      | (?P<turn>@turn\.(?:role|index|last|calls|call_id)\b)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<op>//|==|!=|<=|>=|[-+*/%<>(),])
    )""",
    re.VERBOSE | re.ASCII,
)
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_LEVELS: tuple[tuple[str, ...], ...] = (("or",), ("and",), ("not",), _COMPARISONS, ("+", "-"), ("*", "/", "//", "%"))
_ADVICE = {
    "=": "compare with `==`",
    "!": "write `not`, or compare with `!=`",
    "&": "write `and`",
    "|": "write `or`",
    '"': "put text in single quotes",
    "'": "close the text with a single quote",
    "^": "there is no power; multiply",
    "@": "write `@loop.index`, `@loop.NAME`, or inside `for: turns` `@turn.role`, `index`, `last`, `calls`, `call_id`",
    ".": "names have no dots; write the parameter's name alone",
}

Token = tuple[str, str, int]  # kind, text, position


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            advice = _ADVICE.get(text[at], "use names, numbers, operators and parentheses")
            raise ExpressionError(f"`{text[at]}` is not understood here; {advice}", at)
        kind = match.lastgroup or ""
        tokens.append((kind, match[kind], match.start(kind)))
        at = match.end()
    tokens.append(("end", "", end))
    return tokens


def read(text: str) -> Syntax:
    """The tree of one expression; raises ExpressionError with position and advice."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters; split it up", MAX_LENGTH)
    return _Parser(text).whole()


class _Parser:
    """Recursive descent over `_LEVELS`; `depth` bounds the recursion of this parser and of what it builds."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.next = 0
        self.depth = 0

    def whole(self) -> Syntax:
        tree = self.level(0)
        kind, text, at = self.tokens[self.next]
        if kind != "end":
            raise ExpressionError(f"`{text}` is unexpected here; put an operator before it or remove it", at)
        if _height(tree) > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep; split it up", tree.at)
        return tree

    def level(self, level: int) -> Syntax:
        if level == len(_LEVELS):
            return self.sign()
        if _LEVELS[level] == ("not",):
            return self.negation(level)
        if _LEVELS[level] is _COMPARISONS:
            return self.comparison(level)
        tree = self.level(level + 1)
        while self.peek() in _LEVELS[level]:
            _, op, at = self.take()
            tree = Binary(op, tree, self.level(level + 1), at)  # type: ignore[arg-type]
        return tree

    def negation(self, level: int) -> Syntax:
        if self.peek() != "not":
            return self.level(level + 1)
        _, _, at = self.take()
        with _Nesting(self, at):
            return Unary("not", self.negation(level), at)

    def comparison(self, level: int) -> Syntax:
        first = self.level(level + 1)
        at = self.tokens[self.next][2]
        rest: list[tuple[str, Syntax]] = []
        while self.peek() in _COMPARISONS:
            _, op, _ = self.take()
            rest.append((op, self.level(level + 1)))
        return Compare(first, tuple(rest), at) if rest else first

    def sign(self) -> Syntax:
        if self.peek() != "-":
            return self.atom()
        _, _, at = self.take()
        with _Nesting(self, at):
            return Unary("-", self.sign(), at)

    def atom(self) -> Syntax:
        kind, text, at = self.take()
        if kind == "number":
            return _number(text, at)
        if kind == "string":
            return Const("str", text[1:-1], at)
        if kind == "loop":
            return LoopIndex(text.removeprefix("@loop."), at)
        if kind == "turn":
            return Param(text, at)
        if kind == "name" and text in ("true", "false"):
            return Const("bool", text == "true", at)
        if kind == "name" and text not in RESERVED:
            return self.call(text, at) if self.peek() == "(" else Param(text, at)
        if text == "(":
            with _Nesting(self, at):
                tree = self.level(0)
            self.expect(")", "close the parenthesis")
            return tree
        raise ExpressionError(f"a value is missing before `{text}`" if text else "a value is missing at the end", at)

    def call(self, function: str, at: int) -> Syntax:
        if function not in FUNCTIONS:
            raise ExpressionError(f"there is no function `{function}`; use one of {', '.join(FUNCTIONS)}", at)
        self.take()
        arguments: list[Syntax] = []
        with _Nesting(self, at):
            while self.peek() != ")":
                arguments.append(self.level(0))
                if self.peek() != ")":
                    self.expect(",", "separate arguments with `,`")
        self.take()
        least, most, _ = FUNCTIONS[function]
        if not least <= len(arguments) <= most:
            wanted = f"{least} or more" if most > least else str(least)
            raise ExpressionError(f"`{function}` takes {wanted} arguments, not {len(arguments)}", at)
        return Call(function, tuple(arguments), at)

    def peek(self) -> str:
        kind, text, _ = self.tokens[self.next]
        return text if kind in ("op", "name") else ""

    def take(self) -> Token:
        token = self.tokens[self.next]
        self.next += token[0] != "end"
        return token

    def expect(self, text: str, advice: str) -> None:
        _, found, at = self.take()
        if found != text:
            raise ExpressionError(f"expected `{text}`, found {f'`{found}`' if found else 'the end'}; {advice}", at)


class _Nesting:
    def __init__(self, parser: _Parser, at: int) -> None:
        self.parser, self.at = parser, at

    def __enter__(self) -> None:
        self.parser.depth += 1
        if self.parser.depth > MAX_DEPTH:
            raise ExpressionError(f"nested more than {MAX_DEPTH} deep; split it up", self.at)

    def __exit__(self, *_: object) -> None:
        self.parser.depth -= 1


def _number(text: str, at: int) -> Const:
    if text.isdigit():
        value = int(text)
        if value > INT_LIMIT:
            raise ExpressionError("the number does not fit 64 bits; write a smaller one", at)
        return Const("int", value, at)
    number = float(text)
    if not math.isfinite(number):
        raise ExpressionError("the number is too large; write a smaller one", at)
    return Const("float", number, at)


def _height(tree: Syntax) -> int:
    height, level = 0, (tree,)
    while level:
        height, level = height + 1, tuple(child for part in level for child in children(part))
    return height


# ── functions ───────────────────────────────────────────────────────────────────────────────────


FUNCTIONS: dict[str, tuple[int, int, Callable[..., Any]]] = {
    "min": (2, 16, min),
    "max": (2, 16, max),
    "abs": (1, 1, abs),
    "ceil": (1, 1, math.ceil),
    "floor": (1, 1, math.floor),
    "round": (1, 1, round),
    "float32": (1, 1, float32),
    "flow_time": (3, 3, flow_time),
}


# ── tree -> text ────────────────────────────────────────────────────────────────────────────────


def spell(tree: Syntax) -> str:
    """The canonical spelling: one space around operators, no needless parentheses. Parses to an equal tree."""
    return _source(tree, 0)


def _source(tree: Syntax, outer: int) -> str:
    level, text = _spell(tree)
    return f"({text})" if level < outer else text


def _spell(tree: Syntax) -> tuple[int, str]:
    """How tightly it binds (index into `_LEVELS`, then sign, then atom), and its text."""
    sign, atom = len(_LEVELS), len(_LEVELS) + 1
    match tree:
        case Const():
            return atom, literal(tree.value)
        case Param():
            return atom, tree.name
        case LoopIndex():
            return atom, f"@loop.{tree.loop}"
        case Call():
            return atom, f"{tree.function}({', '.join(_source(a, 0) for a in tree.arguments)})"
        case Unary(op="not"):
            return 2, f"not {_source(tree.operand, 2)}"
        case Unary():
            return sign, f"-{_source(tree.operand, sign)}"
        case Compare():
            return 3, _source(tree.first, 4) + "".join(f" {op} {_source(right, 4)}" for op, right in tree.rest)
        case Binary():
            level = next(i for i, ops in enumerate(_LEVELS) if tree.op in ops)
            return level, f"{_source(tree.left, level)} {tree.op} {_source(tree.right, level + 1)}"


def literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else repr(value)
