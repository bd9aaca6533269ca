"""The palette: every component a graph may name, and the sizes of the families that have weights.

Gathered from the files of this folder: `COMPONENTS` in each, and `SIZES` where they read weights. Declarations only,
no torch.
"""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from walkgraph import plugins
from walkgraph.errors import Conflict
from walkgraph.graph.catalogue import Component
from walkgraph.placement.sizes import FamilySizes

__all__ = ["catalogue", "families", "gather"]


@cache
def catalogue() -> Mapping[str, Component]:
    """Every component by name, sorted."""
    return gather(__name__)


@cache
def families() -> Mapping[str, FamilySizes]:
    """What the weights of every family come to, for `placement.sizes.find_sizes`."""
    files = (plugins.load(__name__, name, "SIZES", {}) for name in plugins.names(__name__))
    return MappingProxyType({family: sizes for found in files for family, sizes in found.items()})


def gather(package: str) -> Mapping[str, Component]:
    """The components that the files of a package declare in `COMPONENTS`. Raises Conflict when two share a name."""
    found: dict[str, Component] = {}
    for family in plugins.names(package):
        components: tuple[Component, ...] = plugins.load(package, family, "COMPONENTS")
        for component in components:
            if component.name in found:
                raise Conflict(f"two files declare `{component.name}`; rename the one in `{package}.{family}`")
            found[component.name] = component
    return MappingProxyType(dict(sorted(found.items())))
