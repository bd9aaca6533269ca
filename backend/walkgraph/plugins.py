"""A name in a folder is a registry name: plugins are files or folders, found by listing a package and imported one at a
time.

No decorators, no lists to edit, no import for its side effects. Installed packages add components by an entry point in
the group `walkgraph.components`, a module that declares them, or `walkgraph.functions`, a module of Python functions,
which is read and not imported. Its name must be in the setting `plugins`, as an installed package is not yet trusted.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from walkgraph.errors import Conflict, NotFound, Refused

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "walkgraph.components"
FUNCTIONS = "walkgraph.functions"
MODELS = "walkgraph.models"
"""The package of the model families, a folder each."""

_BASE = "base"


def names(package: str) -> tuple[str, ...]:
    """List the plugins of `package` by name, sorted, without importing any of them.

    `base` (the family's interface) and modules that start with an underscore are not plugins.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.submodule_search_locations is None:
        raise NotFound(f"`{package}` is not a package of plugins")
    found = (module.name for module in pkgutil.iter_modules(spec.submodule_search_locations))
    return tuple(sorted(name for name in found if name != _BASE and not name.startswith("_")))


def having(package: str, part: str) -> tuple[str, ...]:
    """The plugins of `package`, each a folder, that have a file `part`; none is imported."""
    return tuple(name for name in names(package) if part in names(f"{package}.{name}"))


def load(package: str, name: str, attribute: str, *default: Any) -> Any:
    """Import the plugin `name` of `package` (or, as `plugin.file`, one file of its folder) and return its `attribute`,
    or the default if it has none.

    Raises `NotFound` for a name that is not in the folder. An import error inside the plugin, or a missing
    attribute without a default, is a fault of the plugin and passes through.
    """
    name, _, inner = name.partition(".")
    known = names(package)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean `{nearest[0]}`?" if nearest else ""
        raise NotFound(f"no `{name}` in `{package}`; there are [{', '.join(known)}]{hint}")
    if inner:
        return load(f"{package}.{name}", inner, attribute, *default)
    return getattr(importlib.import_module(f"{package}.{name}"), attribute, *default)


# ── plug-ins of other packages ────────────────────────────────────────────────────────────────────


def installed() -> dict[str, EntryPoint]:
    """Every plug-in of an installed package by name, sorted; none is imported. Raises Conflict if two packages have one
    of the same name."""
    # Imported late: it would take half of the time of the command line's help.
    from importlib.metadata import entry_points

    every = entry_points()  # looking through all packages takes the time, not choosing among what they have
    points = (point for group in (GROUP, FUNCTIONS) for point in every.select(group=group))
    found: dict[str, EntryPoint] = {}
    for point in sorted(points, key=lambda point: point.name):
        other = found.setdefault(point.name, point)
        if (other.value, other.group) != (point.value, point.group):
            raise Conflict(f"`{other.value}` and `{point.value}` are both the plug-in `{point.name}`; uninstall one")
    return found


def listed(wanted: Iterable[str]) -> Iterator[tuple[str, EntryPoint]]:
    """These plug-ins, none of them imported. Raises NotFound for one that isn't installed."""
    names = tuple(dict.fromkeys(wanted))
    known = installed() if names else {}
    return ((name, one_of(known, name)) for name in names)


def one_of(known: Mapping[str, EntryPoint], name: str) -> EntryPoint:
    """A plug-in that is listed. Raises NotFound if it isn't installed."""
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{nearest[0]}`?" if nearest else f"installed are [{', '.join(known)}]"
        raise NotFound(
            f"the plug-in `{name}` is listed (in WALKGRAPH_PLUGINS, or by `walkgraph plugins add`) and is not "
            f"installed; {hint}"
        )
    return known[name]


def declarations(point: EntryPoint) -> ModuleType:
    """Import the declarations of a plug-in. Raises Refused for one that can't be imported."""
    try:
        return importlib.import_module(point.module)
    except Exception as error:
        raise Refused(
            f"the plug-in `{point.name}` can't be imported: {type(error).__name__} in `{point.value}`"
        ) from error


def require_listed(wanted: Iterable[str], module: str) -> None:
    """Raises Refused for a module that belongs to none of these plug-ins' packages."""
    known = installed()
    packages = {known[name].module.partition(".")[0] for name in wanted if name in known}
    if module.partition(".")[0] not in packages:
        raise Refused(f"`{module}` belongs to no plug-in that the settings list")
