"""Type hints as port types: what a value is on a wire, and in which form the function gets it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from walkgraph.functions.source import Source, Unreadable, words
from walkgraph.graph.ports import PortType, parse_type

Form = Literal["text", "bytes", "picture", "tensor", "array", "float", "int", "bool"]
"""The form of a value in Python: `picture` is Pillow's, `array` is NumPy's."""

_TYPING = ("typing.", "typing_extensions.")
_LISTS = frozenset({"list", "List", "collections.abc.Sequence", "Sequence"})
_PLAIN: dict[str, tuple[Form, str]] = {
    "str": ("text", "text: str"),
    "float": ("float", "scalar"),
    "int": ("int", "scalar: int"),
    "bool": ("bool", "flag: bool"),
    "PIL.Image.Image": ("picture", "image: bytes"),
}
_TYPED: dict[str, Form] = {"bytes": "bytes", "torch.Tensor": "tensor", "numpy.ndarray": "array"}
"""Types that need to be told what they hold."""
_BYTES = ("image", "audio", "video", "bytes")
_NOT_TENSORS = frozenset({"text", "messages", *_BYTES})
_DEPTH = 16
"""Aliases of aliases that are followed."""

KINDS = (
    "`str`, `float`, `int`, `bool`, `PIL.Image.Image`, `Annotated[bytes, 'image']`, "
    "`Annotated[torch.Tensor, 'pixels: float[3, h, w]']`, a name from `walkgraph.nodes`, or a `list` of one of these"
)


@dataclass(frozen=True)
class Value:
    """The type of a port, as a hint says it."""

    type: PortType
    form: Form
    optional: bool = False
    description: str = ""


class Hint(NamedTuple):
    """A type hint, the file whose names it uses, and what it is of."""

    source: Source
    expression: ast.expr
    of: str
    """`argument `x``: how messages name it."""
    at: ast.AST
    """The place that messages point to."""
    file: Source
    """The user's file, where messages point to."""

    def inner(self, expression: ast.expr, source: Source | None = None) -> Hint:
        return self._replace(expression=expression, source=source or self.source)

    def wrong(self, text: str) -> Unreadable:
        return self.file.wrong(self.at, f"{self.of} {text}")


def hint(source: Source, expression: ast.expr, of: str, at: ast.AST) -> Hint:
    return Hint(source, expression, of, at, source)


def value(given: Hint) -> Value:
    """Raises Unreadable, with advice, for a type that no wire carries."""
    found = resolved(given)
    members = list(_members(found))
    some = [one for one in members if not _is_none(one)]
    if len(members) > 1 or len(some) < len(members):
        if len(some) != 1:
            raise given.wrong("may be of several types; a port has one: make two arguments, or two components")
        return replace(value(some[0]), optional=True)
    base, parameters = generic(found)
    if base in ("NotRequired", "Required", "ReadOnly") and parameters:
        inner = value(found.inner(parameters[0]))
        return replace(inner, optional=inner.optional or base == "NotRequired")
    if base == "Annotated":
        return _annotated(found, parameters)
    if base in _LISTS:
        return _many(found, parameters)
    return _plain(found, base)


def resolved(given: Hint) -> Hint:
    """Follows aliases and hints in quotes."""
    for _ in range(_DEPTH):
        expression, source = given.expression, given.source
        if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
            given = given.inner(_quoted(given, expression.value))
        elif isinstance(expression, ast.Name) and expression.id in source.assigned:
            given = given.inner(source.assigned[expression.id])
        elif (name := source.dotted(expression) or "").startswith("walkgraph.nodes."):
            offered = words()
            alias = name.removeprefix("walkgraph.nodes.")
            if alias not in offered.assigned or alias.startswith("_"):
                raise given.wrong(f"uses `{alias}`, which `walkgraph.nodes` doesn't have")
            given = given.inner(offered.assigned[alias], offered)
        else:
            return given
    raise given.wrong("uses an alias that leads to itself")


def generic(given: Hint) -> tuple[str, list[ast.expr]]:
    """`Annotated[a, b]` -> its name without `typing.`, and its parameters; of a plain name, the name."""
    expression = given.expression
    parameters: list[ast.expr] = []
    if isinstance(expression, ast.Subscript):
        inside = expression.slice
        parameters = list(inside.elts) if isinstance(inside, ast.Tuple) else [inside]
        expression = expression.value
    name = given.source.dotted(expression) or ""
    for prefix in _TYPING:
        name = name.removeprefix(prefix)
    return name, parameters


def texts(given: Hint, more: list[ast.expr]) -> list[str]:
    """The texts among what stands behind the type in `Annotated`."""
    return [one.value for one in more if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _quoted(given: Hint, text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise given.wrong(f"has the type `{text}`, which is not Python") from None


def _members(given: Hint) -> Iterator[Hint]:
    """The members of a union, or the hint itself."""
    base, parameters = generic(given)
    match given.expression:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from _members(resolved(given.inner(left)))
            yield from _members(resolved(given.inner(right)))
        case ast.Subscript() if base == "Optional" and parameters:
            yield from _members(resolved(given.inner(parameters[0])))
            yield given.inner(ast.Constant(None))
        case ast.Subscript() if base == "Union":
            for one in parameters:
                yield from _members(resolved(given.inner(one)))
        case _:
            yield given


def _is_none(given: Hint) -> bool:
    return isinstance(given.expression, ast.Constant) and given.expression.value is None


def _annotated(given: Hint, parameters: list[ast.expr]) -> Value:
    if len(parameters) < 2:
        raise given.wrong("has an `Annotated` with nothing behind the type")
    inner = resolved(given.inner(parameters[0]))
    said = texts(given, parameters[1:])
    base, _ = generic(inner)
    if base not in _TYPED:
        if any(_is_type(text) for text in said):
            raise given.wrong(f"can't be `{said[0]}`: `{base}` is no `torch.Tensor`")
        found = value(inner)
        return replace(found, description=" ".join(said) or found.description)
    if not said:
        raise given.wrong(f"needs a text behind `{base}` that says what it holds, such as {_example(base)}")
    return Value(_port_type(given, base, said[0]), _TYPED[base], description=" ".join(said[1:]))


def _is_type(text: str) -> bool:
    try:
        return parse_type(text).dtype is not None
    except ValueError:
        return False


def _port_type(given: Hint, base: str, text: str) -> PortType:
    try:
        found = parse_type(text)
    except ValueError as error:
        raise given.wrong(f"has no port type: {error}") from None
    if found.many:
        raise given.wrong("is a list: write `list[...]` around the type of one")
    if base == "bytes":
        if found.modality not in _BYTES:
            raise given.wrong(f"can't be `{text}`: bytes are one of {_listed(_BYTES)}; other data are tensors")
        return PortType(found.modality, "bytes")
    if found.modality in _NOT_TENSORS:
        raise given.wrong(f"can't be `{text}`: a tensor is none; write {_other(found.modality)}")
    if found.dtype in ("str", "bytes"):
        raise given.wrong(f"can't be `{text}`: a tensor has numbers; its dtype is float, int or bool")
    return found


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _other(modality: str) -> str:
    if modality in ("audio", "video", "bytes"):
        return f"`Annotated[bytes, '{modality}']`"
    return {"text": "`str`", "image": "`PIL.Image.Image`"}.get(modality, "another type")


def _many(given: Hint, parameters: list[ast.expr]) -> Value:
    if len(parameters) != 1:
        raise given.wrong("is a list; say of what, as in `list[str]`")
    one = value(given.inner(parameters[0]))
    if one.type.many:
        raise given.wrong("is a list of lists; wires carry lists of single values")
    if one.optional:
        raise given.wrong("is a list with gaps; leave absent values out of the list")
    return replace(one, type=replace(one.type, many=True))


def _plain(given: Hint, base: str) -> Value:
    if base in _PLAIN:
        form, written = _PLAIN[base]
        return Value(parse_type(written), form)
    if base in _TYPED:
        raise given.wrong(f"is `{base}`, which says too little; write {_example(base)}")
    if base == "Literal":
        raise given.wrong("is a choice: choices are parameters, so put it behind `*` and give it a default")
    if base in ("dict", "Dict", "tuple", "Tuple", "set", "object", "Any"):
        raise given.wrong(f"is `{base}`; a port carries {KINDS}")
    raise given.wrong(f"is `{ast.unparse(given.expression)}`, which no wire carries; use {KINDS}")


def _example(base: str) -> str:
    if base == "bytes":
        return "`Annotated[bytes, 'image']` or `Annotated[bytes, 'audio']`"
    return f"`Annotated[{base.rpartition('.')[2]}, 'pixels: float[3, h, w]']`"
