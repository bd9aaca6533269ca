"""The palette: every component that a graph may use, and the sizes of families with weights.

They come from `components.py` of every family's folder in `models`, and of the plug-ins that the settings list:
`COMPONENTS` in each, and `SIZES` for families with weights. Plug-ins of functions are read from their source. No torch.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import NamedTuple

from walkgraph import plugins
from walkgraph.errors import Conflict, WalkgraphError
from walkgraph.functions.finding import source_file
from walkgraph.functions.reading import declared
from walkgraph.graph.catalogue import ANY, Component, Palette
from walkgraph.placement.sizes import FamilySizes
from walkgraph.settings import listed_plugins

__all__ = ["catalogue", "families", "faults", "gather", "renew"]


_Sizes = Mapping[str, FamilySizes]


class _Plugin(NamedTuple):
    """The declarations of one plug-in."""

    components: tuple[Component, ...] = ()
    sizes: _Sizes = MappingProxyType({})


@dataclass(frozen=True)
class _Known:
    """The palette as it was last read."""

    stamp: object
    """Equal while nothing has changed."""
    own: _Plugin
    """The declarations of Walkgraph's own families."""
    palette: Palette
    families: Mapping[str, FamilySizes]
    plugins: Mapping[str, _Plugin]
    faults: Mapping[str, WalkgraphError] = field(default_factory=dict[str, WalkgraphError])


_known: list[_Known] = []
"""The last one alone, once there is one."""


def catalogue() -> Mapping[str, Component]:
    """Every component by name, sorted, as of the last `renew`; raises as it does where there was none."""
    return (_known[0] if _known else _renewed(None)).palette


def families() -> Mapping[str, FamilySizes]:
    """Weight sizes of every family, for `placement.sizes.find_sizes`."""
    return (_known[0] if _known else _renewed(None)).families


def faults() -> Mapping[str, WalkgraphError]:
    """The plug-ins that the last `renew` could not read, and why. Their components are as they were before."""
    return _known[0].faults if _known else {}


def renew() -> bool:
    """Reads again what plug-ins there are, and the source of those that are functions; returns True if the palette has
    changed. The first time, raises Unreadable, NotFound or Refused for a plug-in that can't be had, and Conflict if one
    uses a name outside its own; later such a plug-in stays as it was, and `faults` has the error."""
    before = _known[0] if _known else None
    return _renewed(before) is not before


def _renewed(before: _Known | None) -> _Known:
    try:
        names = listed_plugins()
        known = plugins.installed() if names else {}
    except WalkgraphError:
        if before is None:
            raise
        return before  # a list that is damaged says nothing; the next start tells it
    points: dict[str, EntryPoint] = {}
    wrong: dict[str, WalkgraphError] = {}
    for name in names:
        try:
            points[name] = plugins.one_of(known, name)
        except WalkgraphError as error:
            if before is None:
                raise
            wrong[name] = error
    stamp = (names, tuple(sorted(wrong)), tuple(_stamp(point) for point in points.values()))
    if before is not None and before.stamp == stamp:
        return before
    found: dict[str, _Plugin] = {}
    own = before.own if before is not None else _own()
    sizes = dict(own.sizes)
    for name in names:
        former = before.plugins.get(name) if before is not None else None
        try:
            found[name] = _read(name, points[name], former, sizes) if name in points else former or _Plugin()
        except WalkgraphError as error:
            if before is None:
                raise
            wrong[name] = error
            found[name] = former or _Plugin()
        sizes |= found[name].sizes
    components = [one for plugin in (own, *found.values()) for one in plugin.components]
    palette = Palette(_fitted(component, sizes) for component in components)
    _known[:] = [_Known(stamp, own, palette, MappingProxyType(sizes), found, wrong)]
    return _known[0]


def _stamp(point: EntryPoint) -> object:
    """Equal as long as what a plug-in declares can't have changed. What was imported stays."""
    if point.group != plugins.FUNCTIONS:
        return point.value
    try:
        path, _ = source_file(point)
        status = path.stat()
    except (WalkgraphError, OSError):
        return None
    return point.value, path, status.st_mtime_ns, status.st_size, status.st_ino


def _read(name: str, point: EntryPoint, former: _Plugin | None, sizes: _Sizes) -> _Plugin:
    """`sizes`: of the families that exist already. Raises Conflict if the plug-in has sizes of one of them."""
    if name in plugins.names(plugins.MODELS):
        raise Conflict(f"the plug-in `{name}` has the name of one of Walkgraph's families; rename its entry point")
    if point.group == plugins.FUNCTIONS:
        path, shown = source_file(point)
        made = declared(path, shown, point.module, name).values()
        own = {one.component.weights: one.sizes for one in made if one.component.weights and one.sizes}
        return _Plugin(tuple(one.component for one in made), _only_new(name, own, sizes))
    if former is not None:
        return former
    module = plugins.declarations(point)
    own = _only_new(name, getattr(module, "SIZES", {}), sizes)
    return _Plugin(tuple(_of_plugin(name, getattr(module, "COMPONENTS", ()))), own)


def _only_new(
    plugin: str, own: Mapping[str, FamilySizes], sizes: Mapping[str, FamilySizes]
) -> Mapping[str, FamilySizes]:
    if taken := sorted(set(own) & set(sizes)):
        raise Conflict(
            f"the plug-in `{plugin}` has sizes of `{taken[0]}`, a family that exists already; rename the plug-in's "
            "family"
        )
    return own


def _own() -> _Plugin:
    own = (plugins.load(plugins.MODELS, f"{name}.components", "SIZES", {}) for name in plugins.names(plugins.MODELS))
    sizes = {family: sizes for sizes_of in own for family, sizes in sizes_of.items()}
    return _Plugin(tuple(gather(plugins.MODELS).values()), sizes)


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


def _fitted(component: Component, families: Mapping[str, FamilySizes]) -> Component:
    if component.weights != ANY:
        return component
    fitting = (name for name, sizes in families.items() if component.reads in {None, *sizes.holds})
    return replace(component, families=tuple(sorted(fitting)))


def _of_plugin(plugin: str, components: Iterable[Component]) -> Iterator[Component]:
    """A plug-in's components. Their names must begin with the plug-in's, so they can't replace others that graphs
    use."""
    prefix = plugin.replace("-", "_") + "."
    for component in components:
        if not component.name.startswith(prefix):
            raise Conflict(
                f"the plug-in `{plugin}` declares `{component.name}`; its components must begin with `{prefix}`"
            )
        yield component
