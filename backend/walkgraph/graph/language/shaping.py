"""Shaped components, whose ports follow from parameters: of a template with its holes, of a constant with its type.

A component's declaration names the parameter (`Param.gives`) and the ports that follow from it (`Port.of`):

    type     the parameter is a port type, `image` or `list of text`; the port has it
    ports    the parameter lists ports, `a, b: image, c?: list of text`; the port stands for each of them
    holes    the parameter is a text with holes, `A {size: scalar} by {name}`; the port stands for each of them

A listed port without a type has that of the port that stands for it, or the one that the parameter `Port.like` names;
`?` makes it optional. In a text with holes, `{{` and `}}` are braces. Such parameters are literals, so a node's ports
are known before anything runs.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from walkgraph.graph.catalogue import Catalogue, Component, Param, Port, Scalar
from walkgraph.graph.document import Node
from walkgraph.graph.ports import PortType, parse_type

MOST_PORTS = 64
"""The most ports that one parameter may give."""

_NAME = re.compile(r"\s*(?P<name>[A-Za-z][A-Za-z0-9_]{0,63})\s*(?P<optional>\?)?\s*(?::(?P<type>.*))?\Z", re.DOTALL)
_HOLE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_COMMA = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True)
class Listed:
    """A port that a parameter lists."""

    name: str
    type: PortType | None
    optional: bool = False


_Given = PortType | tuple[Listed, ...] | None


def holes(text: str) -> Iterator[str | Listed]:
    """The pieces of a text with holes, in order: plain texts and ports. Raises ValueError with advice."""
    end = 0
    for match in _HOLE.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match[1] is not None:
            yield _listed(match[1])
        elif len(match[0]) == 2:
            yield match[0][0]
        else:
            raise ValueError(f"has a single `{match[0]}` at {match.start()}; write `{match[0] * 2}` for a brace")
    yield text[end:]


def listed_ports(text: str) -> tuple[Listed, ...]:
    """The ports that a text lists, `a, b: image, c?`. Raises ValueError with advice."""
    return tuple(map(_listed, _COMMA.split(text))) if text.strip() else ()


def fault(component: Component, key: str, value: Scalar) -> str | None:
    """The reason that a component can't have the ports that follow from a parameter; None if it can."""
    param = component.params[key]
    if not param.gives or not isinstance(value, str):
        return None
    if value.startswith("="):
        return "gives the node its ports, so it must be a literal; remove the `=`"
    try:
        given = _given(param, value)
    except ValueError as error:
        return str(error) if param.gives == "holes" else f"can't be read: {error}"
    if isinstance(given, PortType):
        return None
    for side in (component.inputs, component.outputs):
        if any(port.of == key for port in side):
            taken = {port.name for port in side if port.of != key} & {port.name for port in given}
            if taken:
                return f"names `{min(taken)}`, a port that `{component.name}` has already; choose another name"
    return None


def shaped(component: Component, params: Mapping[str, Scalar]) -> Component:
    """The component with the ports that a node's parameters give it. A type that can't be read leaves the declared one,
    a list of ports gives none."""
    given: dict[str, _Given] = {}
    for key, param in component.params.items():
        value = params.get(key, param.default) if param.gives else None
        if param.gives:
            try:
                given[key] = _given(param, value if isinstance(value, str) else "")
            except ValueError:
                given[key] = None if param.gives == "type" else ()
    if not given:
        return component
    inputs, outputs = (tuple(_ports(side, given)) for side in (component.inputs, component.outputs))
    return replace(component, inputs=inputs, outputs=outputs)


def component_of(catalogue: Catalogue, node: Node) -> Component | None:
    """The component of a node, with the node's own ports; None if the catalogue doesn't know it."""
    found = catalogue.get(node.component)
    return shaped(found, node.params) if found is not None else None


def _ports(declared: Sequence[Port], given: Mapping[str, _Given]) -> Iterator[Port]:
    for port in declared:
        match given.get(port.of):
            case None:
                yield port
            case PortType() as kind:
                yield replace(port, type=replace(kind, many=kind.many or port.type.many))
            case listed:
                like = given.get(port.like)
                kind = replace(like, many=port.type.many) if isinstance(like, PortType) else port.type
                for one in listed:
                    yield replace(port, name=one.name, type=one.type or kind, optional=one.optional or port.optional)


def _given(param: Param, value: str) -> PortType | tuple[Listed, ...]:
    """Read the type or the ports that a parameter gives. Raises ValueError with advice."""
    if param.gives == "type":
        return parse_type(value)
    found: dict[str, Listed] = {}
    for one in holes(value) if param.gives == "holes" else listed_ports(value):
        if isinstance(one, str):
            continue
        first = found.setdefault(one.name, one)
        if param.gives == "ports" and first is not one:
            raise ValueError(f"`{one.name}` is listed twice; name each port once")
        if one.type not in (None, first.type):
            raise ValueError(f"`{one.name}` has two types; write its type once")
    if len(found) > MOST_PORTS:
        raise ValueError(f"there are {len(found)} ports; name at most {MOST_PORTS}")
    return tuple(found.values())


def _listed(text: str) -> Listed:
    match = _NAME.match(text)
    if match is None:
        raise ValueError(f"`{text.strip()[:64]}` is not a port; write `name` or `name: type`")
    kind = parse_type(match["type"]) if match["type"] is not None else None
    return Listed(match["name"], kind, match["optional"] is not None)
