"""Wrapped models of a plug-in's file as components: classes under `wrap.module`, and what `wrap.transformers` and
`wrap.onnx` are assigned to."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from walkgraph import wrap
from walkgraph.functions.annotations import Value, hint
from walkgraph.functions.docstrings import docstring
from walkgraph.functions.parameters import parameter
from walkgraph.functions.signatures import Signature, signature
from walkgraph.functions.source import Source, Unreadable
from walkgraph.graph.catalogue import Param
from walkgraph.graph.ports import PortType, parse_type

_MODULE = "walkgraph.wrap.module"
_MADE: dict[str, Callable[..., Made]] = {
    "walkgraph.wrap.transformers": wrap.transformers,
    "walkgraph.wrap.onnx": wrap.onnx,
}
_BASES = frozenset({"torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"})
_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
Made = wrap.Module | wrap.Transformers | wrap.Onnx


@dataclass(frozen=True)
class Wrapped:
    name: str
    """The second half of the component's name."""
    signature: Signature
    made: Made
    options: Mapping[str, Param]
    """Parameters that are read when it is loaded."""


def wrapped(source: Source) -> Iterator[tuple[str, Wrapped]]:
    """Each with its name in the file. Raises Unreadable for the first mistake."""
    for statement in source.tree.body:
        match statement:
            case ast.ClassDef(name=name):
                for mark in statement.decorator_list:
                    call = mark if isinstance(mark, ast.Call) else None
                    if source.dotted(call.func if call else mark) == _MODULE:
                        yield name, _module(source, statement, call)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                if source.dotted(call.func) in _MADE:
                    yield name, _assigned(source, name, call)
            case _:
                pass


def _module(source: Source, made: ast.ClassDef, call: ast.Call | None) -> Wrapped:
    if not any(source.dotted(base) in _BASES for base in made.bases):
        raise source.wrong(made, f"`{made.name}` is wrapped and is no `torch.nn.Module`; derive it from that")
    functions = {one.name: one for one in made.body if isinstance(one, ast.FunctionDef)}
    if "forward" not in functions:
        raise source.wrong(made, f"`{made.name}` has no `forward`")
    found = signature(source, functions["forward"], f"{made.name}.forward", method=True)
    told = docstring(ast.get_docstring(made))
    if not told.summary:
        raise source.wrong(made, f"`{made.name}` has no docstring; its first sentence is the component's help")
    for port, one in {**found.inputs, **found.outputs}.items():
        if one.form != "tensor" or one.type.many:
            raise source.wrong(
                made, f"`{port}` of `{made.name}` is no tensor; what a module takes and gives are tensors"
            )
    options = dict(_options(source, functions.get("__init__"), told.arguments))
    if both := sorted(set(options) & set(found.params)):
        raise source.wrong(made, f"`{made.name}` has `{both[0]}` in `__init__` and in `forward`; rename one")
    given = _written(source, call, wrap.given_module)
    name = _BEFORE_CAPITAL.sub("_", made.name).lower()
    shown = replace(found, description=told.summary, params={**options, **found.params})
    return Wrapped(name, shown, given, options)


def _options(source: Source, init: ast.FunctionDef | None, told: Mapping[str, str]) -> Iterator[tuple[str, Param]]:
    if init is None:
        return
    arguments = init.args
    if arguments.vararg or arguments.kwarg:
        raise source.wrong(init, "`__init__` takes `*` or `**` arguments; parameters have names, so write each")
    named = [*arguments.posonlyargs, *arguments.args][1:]
    defaults = dict(zip((one.arg for one in reversed(named)), reversed(arguments.defaults), strict=False))
    keywords = dict(zip((one.arg for one in arguments.kwonlyargs), arguments.kw_defaults, strict=True))
    for argument in (*named, *arguments.kwonlyargs):
        of = f"argument `{argument.arg}` of `__init__`"
        if argument.annotation is None:
            raise source.wrong(argument, f"{of} has no type; write one, as in `{argument.arg}: int = 16`")
        default = defaults.get(argument.arg) or keywords.get(argument.arg)
        made = parameter(hint(source, argument.annotation, of, argument), default)
        yield argument.arg, replace(made, description=told.get(argument.arg, "") or made.description)


def _assigned(source: Source, name: str, call: ast.Call) -> Wrapped:
    made = _written(source, call, _MADE[source.dotted(call.func) or ""])
    made = cast("wrap.Transformers | wrap.Onnx", made)
    if not made.description.strip() or not made.inputs or not made.outputs:
        raise source.wrong(call, f"`{name}` needs `inputs`, `outputs` and a `description`")
    inputs = {port: _value(source, call, port, text) for port, text in made.inputs.items()}
    outputs = {port: _value(source, call, port, text) for port, text in made.outputs.items()}
    description = docstring(made.description).summary
    return Wrapped(name, Signature(inputs, {}, outputs, "items", description=description), made, {})


def _written(source: Source, call: ast.Call | None, make: Callable[..., Made]) -> Made:
    """The value of a call whose arguments are literals."""
    if call is None:
        return make()
    try:
        words = [source.literal(one) for one in call.args]
        named = {one.arg or "": source.literal(one.value) for one in call.keywords}
        return make(*words, **named)
    except (TypeError, SyntaxError) as error:
        raise source.wrong(call, f"`{ast.unparse(call.func)}` can't be called like this: {error}") from None
    except ValueError as error:
        text = str(error)
        if text.startswith("malformed node"):
            text = "its arguments must be written out, as the file is only read"
        raise source.wrong(call, f"`{ast.unparse(call.func)}`: {text}") from None


def _value(source: Source, call: ast.Call, port: object, text: object) -> Value:
    if not isinstance(port, str) or not port.isidentifier() or not isinstance(text, str):
        raise source.wrong(call, f"`{port}` must be a name, with the type of its port as text")
    return Value(_type(source, call, port, text), "tensor")


def _type(source: Source, call: ast.Call, port: str, text: str) -> PortType:
    try:
        found = parse_type(text)
    except ValueError as error:
        raise source.wrong(call, f"`{port}` has no port type: {error}") from None
    if found.dtype not in ("float", "int", "bool") or found.many or found.modality in ("text", "messages"):
        raise _no_tensor(source, call, port, text)
    return found


def _no_tensor(source: Source, call: ast.Call, port: str, text: str) -> Unreadable:
    return source.wrong(call, f"`{port}` is `{text}`, no tensor; write its numbers too, as in `pixels: float[3, h, w]`")
