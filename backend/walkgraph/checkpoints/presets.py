"""Look up the configuration that a `random:CONFIG:SEED` source names."""

from collections.abc import Mapping
from typing import TypeVar

from walkgraph.errors import NotFound

C = TypeVar("C")


def preset(known: Mapping[str, C], name: str) -> C:
    """The configuration of a name. Raises `NotFound` for an unknown one."""
    if name not in known:
        raise NotFound(f"no configuration `{name}` of this family; choose one of {sorted(known)}")
    return known[name]
