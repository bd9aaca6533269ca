"""The signature of a function as ports and parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from walkgraph.functions.annotations import Hint, Value, generic, hint, resolved, value
from walkgraph.functions.docstrings import Docstring, docstring
from walkgraph.functions.parameters import is_seed, parameter
from walkgraph.functions.source import Source
from walkgraph.graph.catalogue import Param, Port

Function = ast.FunctionDef | ast.AsyncFunctionDef
DETERMINISTIC = "walkgraph.nodes.deterministic"
Answer = Literal["single", "items", "attributes"]
"""The form of a function's outputs: one value, by the keys of a dict, or as the attributes of an object."""


@dataclass(frozen=True)
class Signature:
    inputs: Mapping[str, Value] = field(default_factory=dict[str, Value])
    params: Mapping[str, Param] = field(default_factory=dict[str, Param])
    outputs: Mapping[str, Value] = field(default_factory=dict[str, Value])
    answer: Answer = "single"
    seed: str | None = None
    """The argument that gets the seed of the call."""
    description: str = ""
    batched: str | None = None
    """The name of the function that takes many calls at once."""
    deterministic: bool = False
    """Its decorator says so."""

    @property
    def on_host(self) -> bool:
        """True if no port is a tensor of torch, so that the function belongs on the CPU."""
        return all(one.form != "tensor" for one in (*self.inputs.values(), *self.outputs.values()))

    def input_ports(self) -> tuple[Port, ...]:
        return tuple(_ports(self.inputs))

    def output_ports(self) -> tuple[Port, ...]:
        return tuple(_ports(self.outputs))


def signature(source: Source, function: Function, name: str, *, method: bool = False) -> Signature:
    """`name`: of the component. `method`: the first argument is `self`. Raises Unreadable."""
    _refuse_kinds(source, function, name)
    told = docstring(ast.get_docstring(function))
    inputs = dict(_inputs(source, function, told, method=method))
    params, seed = _parameters(source, function, told)
    outputs, answer = outputs_of(source, function, told)
    found = Signature(
        inputs, params, outputs, answer, seed, told.summary, deterministic=_is_deterministic(source, function, seed)
    )
    known = {*inputs, *params, seed}
    for one in told.arguments:
        if one not in known:
            raise source.wrong(function, f"the docstring of `{name}` explains `{one}`, which is no argument of it")
    return found


def _refuse_kinds(source: Source, function: Function, name: str) -> None:
    arguments = function.args
    if isinstance(function, ast.AsyncFunctionDef):
        raise source.wrong(function, f"`{name}` is `async`; a node is a plain function, which is called for each run")
    if arguments.vararg is not None:
        raise source.wrong(
            arguments.vararg, f"`{name}` takes `*{arguments.vararg.arg}`; ports have names, so write each argument"
        )
    if arguments.kwarg is not None:
        raise source.wrong(
            arguments.kwarg, f"`{name}` takes `**{arguments.kwarg.arg}`; parameters have names, so write each argument"
        )
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _own(function)):
        raise source.wrong(function, f"`{name}` yields; a node returns its outputs at once, so collect them in a list")


def _is_deterministic(source: Source, function: Function, seed: str | None) -> bool:
    for decorator in function.decorator_list:
        if source.dotted(decorator) != DETERMINISTIC:
            continue
        if seed is not None:
            raise source.wrong(
                decorator, f"`{function.name}` takes a seed, so it isn't deterministic; remove one of both"
            )
        return True
    return False


def _own(function: Function) -> Iterator[ast.AST]:
    """The nodes of a function's body without those of functions inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _inputs(source: Source, function: Function, told: Docstring, *, method: bool) -> Iterator[tuple[str, Value]]:
    arguments = [*function.args.posonlyargs, *function.args.args][1 if method else 0 :]
    defaults = dict(zip((one.arg for one in reversed(arguments)), reversed(function.args.defaults), strict=False))
    for argument in arguments:
        of = f"argument `{argument.arg}`"
        if argument.annotation is None:
            raise source.wrong(argument, f"{of} has no type; write one, as in `{argument.arg}: str`")
        found = value(hint(source, argument.annotation, of, argument))
        default = defaults.get(argument.arg)
        if default is not None:
            _refuse_default(source, argument, default, found)
        yield argument.arg, _told(found, told.arguments.get(argument.arg, ""))


def _refuse_default(source: Source, argument: ast.arg, default: ast.expr, found: Value) -> None:
    name = argument.arg
    none = isinstance(default, ast.Constant) and default.value is None
    if not none:
        raise source.wrong(
            argument, f"argument `{name}` is an input port, which has no default; a parameter stands behind a `*`"
        )
    if not found.optional:
        typed = ast.unparse(argument.annotation) if argument.annotation else name
        raise source.wrong(argument, f"argument `{name}` may be left out; write `{name}: {typed} | None = None`")


def _parameters(source: Source, function: Function, told: Docstring) -> tuple[dict[str, Param], str | None]:
    found: dict[str, Param] = {}
    seed: str | None = None
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        name, of = argument.arg, f"argument `{argument.arg}`"
        if argument.annotation is None:
            raise source.wrong(argument, f"{of} has no type; write one, as in `{name}: float = 1.0`")
        given = hint(source, argument.annotation, of, argument)
        if is_seed(given):
            seed = name
            continue
        made = parameter(given, default)
        found[name] = replace(made, description=told.arguments.get(name, "") or made.description)
    return found, seed


def outputs_of(source: Source, function: Function, told: Docstring) -> tuple[dict[str, Value], Answer]:
    """The output ports by name, and how the function gives them."""
    if function.returns is None:
        raise source.wrong(function, f"`{function.name}` doesn't say what it returns; write `-> str:`, for example")
    given = hint(source, function.returns, f"what `{function.name}` returns", function)
    found = resolved(given)
    if isinstance(found.expression, ast.Constant) and found.expression.value is None:
        raise source.wrong(function, f"`{function.name}` returns None; a component gives at least one output")
    if isinstance(found.expression, ast.Name) and found.expression.id in source.classes:
        return _fields(found, source.classes[found.expression.id])
    base, _ = generic(found)
    if base in ("tuple", "Tuple"):
        raise given.wrong("is a tuple, whose parts have no names; make it a class on `NamedTuple` in this file")
    if base in ("dict", "Dict"):
        raise given.wrong("is a dict, whose keys are not known; make it a class on `TypedDict` in this file")
    one = _told(_given(value(given)), told.returns)
    return {one.type.modality: one}, "single"


def _fields(given: Hint, made: ast.ClassDef) -> tuple[dict[str, Value], Answer]:
    bases = [(given.source.dotted(base) or "").rpartition(".")[2] for base in made.bases]
    marks = [given.source.dotted(d.func if isinstance(d, ast.Call) else d) or "" for d in made.decorator_list]
    if "TypedDict" in bases:
        answer: Answer = "items"
    elif "NamedTuple" in bases or any(mark.rpartition(".")[2] == "dataclass" for mark in marks):
        answer = "attributes"
    else:
        raise given.wrong(f"is `{made.name}`, a class of its own; make it a `TypedDict` or a `NamedTuple`")
    total = not any(k.arg == "total" and isinstance(k.value, ast.Constant) and not k.value.value for k in made.keywords)
    found: dict[str, Value] = {}
    for statement, after in _with_next(made.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            one = _given(value(hint(given.source, statement.annotation, f"output `{name}`", statement)))
            optional = one.optional or (answer == "items" and not total)
            found[name] = _told(replace(one, optional=optional), _text(after))
    if not found:
        raise given.wrong(f"is `{made.name}`, which has no fields; write one for each output")
    return found, answer


def _given(found: Value) -> Value:
    """A number that is given is a float where it says so; one that is taken may be whole."""
    return replace(found, type=replace(found.type, dtype="float")) if found.form == "float" else found


def _with_next(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    yield from zip(body, [*body[1:], None], strict=True)


def _text(statement: ast.stmt | None) -> str:
    """The docstring under a field."""
    match statement:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return " ".join(text.split())
        case _:
            return ""


def _told(found: Value, text: str) -> Value:
    return replace(found, description=text) if text else found


def _ports(values: Mapping[str, Value]) -> Iterable[Port]:
    return (Port(name, one.type, one.optional, one.description) for name, one in values.items())
