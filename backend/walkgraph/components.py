"""The palette: every component that a graph may use, and the sizes of families with weights.

They come from `components.py` of every family's folder in `models`, and of the plug-ins that the settings list:
`COMPONENTS` in each, and `SIZES` for families with weights. Declarations only, no torch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from walkgraph import plugins
from walkgraph.errors import Conflict
from walkgraph.graph.catalogue import ANY, Component, Palette
from walkgraph.placement.sizes import FamilySizes
from walkgraph.settings import listed_plugins

__all__ = ["catalogue", "families", "gather"]


@cache
def catalogue() -> Mapping[str, Component]:
    """Every component by name, sorted. Raises as `plugins.listed` does, and Conflict if a plug-in uses a name outside
    its own, or two components share a former name."""
    found = dict(gather(plugins.MODELS))
    for plugin, module in plugins.listed(listed_plugins()):
        for component in _of_plugin(plugin, getattr(module, "COMPONENTS", ())):
            found[component.name] = component
    return Palette(map(_fitted, found.values()))


@cache
def families() -> Mapping[str, FamilySizes]:
    """Weight sizes of every family, for `placement.sizes.find_sizes`."""
    own = (plugins.load(plugins.MODELS, f"{name}.components", "SIZES", {}) for name in plugins.names(plugins.MODELS))
    found = {family: sizes for sizes_of in own for family, sizes in sizes_of.items()}
    for plugin, module in plugins.listed(listed_plugins()):
        more: Mapping[str, Any] = getattr(module, "SIZES", {})
        if taken := sorted(set(more) & set(found)):
            raise Conflict(
                f"the plug-in `{plugin}` has sizes of `{taken[0]}`, a "
                "family that exists already; rename the plug-in's family"
            )
        found |= more
    return MappingProxyType(found)


def gather(package: str) -> Mapping[str, Component]:
    """The components that a package's families declare in `COMPONENTS` of their file `components`. Raises Conflict if
    two share a name."""
    found: dict[str, Component] = {}
    for family in plugins.names(package):
        components: tuple[Component, ...] = plugins.load(package, f"{family}.components", "COMPONENTS")
        for component in components:
            if component.name in found:
                raise Conflict(f"two families declare `{component.name}`; rename the one in `{package}.{family}`")
            found[component.name] = component
    return MappingProxyType(dict(sorted(found.items())))


def _fitted(component: Component) -> Component:
    if component.weights != ANY:
        return component
    fitting = (name for name, sizes in families().items() if component.reads in {None, *sizes.holds})
    return replace(component, families=tuple(sorted(fitting)))


def _of_plugin(plugin: str, components: Iterable[Component]) -> Iterator[Component]:
    """A plug-in's components. Their names must begin with the plug-in's, so they can't replace others that graphs
    use."""
    prefix = plugin.replace("-", "_") + "."
    if plugin in plugins.names(plugins.MODELS):
        raise Conflict(f"the plug-in `{plugin}` has the name of one of Walkgraph's families; rename its entry point")
    for component in components:
        if not component.name.startswith(prefix):
            raise Conflict(
                f"the plug-in `{plugin}` declares `{component.name}`; its components must begin with `{prefix}`"
            )
        yield component
