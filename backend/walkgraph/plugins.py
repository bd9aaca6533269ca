"""A file name is a registry name: plugins are found by listing a package's folder and imported one at a time.

No decorators, no lists to edit, no import for its side effects.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from typing import Any

from walkgraph.errors import NotFound

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


def load(package: str, name: str, attribute: str, *default: Any) -> Any:
    """Import the one plugin `name` of `package` and return its `attribute`, or the default where it has none.

    Raises `NotFound` for a name that is not in the folder. An import error inside the plugin, or a missing
    attribute without a default, is a fault of the plugin and passes through.
    """
    known = names(package)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean `{nearest[0]}`?" if nearest else ""
        raise NotFound(f"no `{name}` in `{package}`; have [{', '.join(known)}]{hint}")
    return getattr(importlib.import_module(f"{package}.{name}"), attribute, *default)
