"""The components of a plug-in's file: each public function with type hints is one, and each wrapped model."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from walkgraph import wrap
from walkgraph.functions.signatures import Function, Signature, signature
from walkgraph.functions.source import Source, parsed
from walkgraph.functions.wrapped import Wrapped, wrapped
from walkgraph.graph.catalogue import Category, Component
from walkgraph.placement.sizes import EVERY, TOKENIZER, FamilySizes, Part

BATCHED = "_batched"
"""The end of the name of a function that serves many calls of the function before it."""
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_CATEGORIES: tuple[str, ...] = get_args(Category)
_BY_MODALITY: dict[str, Category] = {
    "image": "Picture",
    "pixels": "Picture",
    "audio": "Sound",
    "waveform": "Sound",
    "text": "Text",
    "scalar": "Numbers",
    "flag": "Numbers",
    "actions": "Action",
}


@dataclass(frozen=True)
class Declared:
    """A component, and how to call what it is made of."""

    component: Component
    signature: Signature
    wrapped: Wrapped | None = None
    """The way in which a model was wrapped."""
    sizes: FamilySizes | None = None
    """The sizes of a model's weights, under the name of their family, `component.weights`."""


def declared(path: Path, shown: str, module: str, plugin: str) -> dict[str, Declared]:
    """The components of a file by the names of their functions. `shown`: the file's name in messages. Raises
    Unreadable for the first mistake."""
    source = parsed(path, shown)
    category = _category(source)
    found: dict[str, Declared] = {}
    functions = {one.name: one for one in _public(source)}
    for name, function in functions.items():
        if name.endswith(BATCHED) and name.removesuffix(BATCHED) in functions:
            continue
        if name in found or not _NAME.match(name):
            raise source.wrong(function, f"`{name}` can't be a component's name; write it in small letters")
        made = signature(source, function, name)
        if not made.description:
            raise source.wrong(function, f"`{name}` has no docstring; its first sentence is the component's help")
        if (twin := functions.get(name + BATCHED)) is not None:
            made = _with_batched(source, made, twin)
        found[name] = Declared(_component(made, name, f"{module}:{name}", plugin, category), made)
    for attribute, model in wrapped(source):
        if attribute in found or model.name in functions or not _NAME.match(model.name):
            raise source.wrong(None, f"`{attribute}` can't be a component: its name is taken, or not in small letters")
        found[attribute] = _model(model, f"{module}:{attribute}", plugin, category)
    if not found:
        raise source.wrong(None, "there is no component; write a function with type hints and a docstring")
    return found


def _model(model: Wrapped, network: str, plugin: str, category: Category | None) -> Declared:
    made = _component(model.signature, model.name, network, plugin, category or "Model")
    family = made.name.replace(".", "_")
    file = model.made.file if isinstance(model.made, wrap.Onnx) else None
    stem = (model.made.files or EVERY) if isinstance(model.made, wrap.Module) else EVERY
    part = Part(stem=stem, file=file, exact=file is not None)
    sizes = FamilySizes(
        parts={"weights": part},
        components={made.name: ("weights",)},
        shapes={},
        unsized=True,
        holds=frozenset({TOKENIZER}) if isinstance(model.made, wrap.Transformers) else frozenset(),
    )
    return Declared(replace(made, weights=family, host=False), model.signature, model, sizes)


def _public(source: Source) -> Iterator[Function]:
    """The functions at the top of a file that are components: those in `__all__`, or all without an underscore."""
    wanted = _all(source)
    seen: set[str] = set()
    for statement in source.tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if statement.name not in wanted if wanted is not None else statement.name.startswith("_"):
            continue
        if statement.name in seen:
            raise source.wrong(statement, f"there are two functions `{statement.name}`; rename one")
        seen.add(statement.name)
        yield statement


def _all(source: Source) -> set[str] | None:
    if "__all__" not in source.assigned:
        return None
    try:
        return {str(name) for name in _iterated(source.literal(source.assigned["__all__"]))}
    except (ValueError, TypeError):
        raise source.wrong(source.assigned["__all__"], "`__all__` must be a list of names, written out") from None


def _iterated(value: object) -> Iterable[object]:
    if not isinstance(value, (list, tuple)):
        raise TypeError
    return value  # pyright: ignore[reportUnknownVariableType]


def _category(source: Source) -> Category | None:
    """The `CATEGORY` that the file names for all of its components."""
    given = source.assigned.get("CATEGORY")
    if given is None:
        return None
    for known in get_args(Category):
        if isinstance(given, ast.Constant) and given.value == known:
            return known
    raise source.wrong(given, f"`CATEGORY` must be one of {', '.join(_CATEGORIES)}")


def _with_batched(source: Source, made: Signature, twin: Function) -> Signature:
    """Raises Unreadable if the arguments of the batched form are others."""
    names = [one.arg for one in (*twin.args.posonlyargs, *twin.args.args)]
    keywords = [one.arg for one in twin.args.kwonlyargs]
    if names != list(made.inputs) or sorted(keywords) != sorted(made.params) or made.seed is not None:
        single = twin.name.removesuffix(BATCHED)
        raise source.wrong(
            twin,
            f"`{twin.name}` must take the arguments of `{single}`: of each input a list with one entry a call, and "
            "the same parameters; a function that takes a seed has no batched form",
        )
    return replace(made, batched=twin.name)


def _component(made: Signature, name: str, network: str, plugin: str, category: Category | None) -> Component:
    outputs = made.output_ports()
    return Component(
        name=f"{plugin.replace('-', '_')}.{name}",
        category=category or _BY_MODALITY.get(outputs[0].type.modality, "Other"),
        description=made.description,
        inputs=made.input_ports(),
        outputs=outputs,
        params=made.params,
        host=made.on_host,
        deterministic=made.deterministic,
        network=network,
    )
