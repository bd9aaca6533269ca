"""`walkgraph version`: print the versions of this installation."""

from __future__ import annotations

import platform
import sys

from walkgraph import __version__
from walkgraph.cli import output
from walkgraph.cli.options import Json

PACKAGES = ("walkgraph-editor", "torch", "triton", "flashinfer-python")


def command(as_json: Json = False) -> None:
    """Print the versions of Walkgraph, Python, torch and the packages that kernels need."""
    from importlib.metadata import PackageNotFoundError, version

    found = {
        "walkgraph": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "platform": platform.platform(),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if as_json:
        output.as_json(found)
        return
    output.line(f"walkgraph {found.pop('walkgraph')}")
    output.table(("", ""), found.items())
