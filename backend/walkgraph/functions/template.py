"""The files of a new plug-in: one function, its test, a graph that uses it, and how to add it."""

from __future__ import annotations

import json
import keyword
import re
from typing import NamedTuple

from walkgraph.errors import InvalidInput

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


class Named(NamedTuple):
    """`photo.sharpen` -> the plug-in and the function."""

    plugin: str
    function: str

    @property
    def package(self) -> str:
        return f"walkgraph_{self.plugin}"

    @property
    def component(self) -> str:
        return f"{self.plugin}.{self.function}"


def named(given: str) -> Named:
    """`photo.sharpen`, or one word for both. Raises InvalidInput."""
    plugin, _, function = given.partition(".")
    found = Named(plugin, function or plugin)
    for part in found:
        if not _NAME.match(part) or keyword.iskeyword(part):
            raise InvalidInput(
                f"`{given}` can't be a component's name; write `photo.sharpen`, or one word, in small letters, digits "
                "and underscores"
            )
    return found


def files(name: Named) -> dict[str, str]:
    """Path in the plug-in's folder -> text."""
    words = {"PLUGIN": name.plugin, "FUNCTION": name.function, "PACKAGE": name.package}
    pattern = re.compile("|".join(words))
    texts = {
        "pyproject.toml": _PROJECT,
        "README.md": _README,
        f"{name.package}/__init__.py": _FUNCTION,
        f"tests/test_{name.function}.py": _TEST,
    }
    found = {path: pattern.sub(lambda word: words[word[0]], text) for path, text in texts.items()}
    return {**found, f"{name.function}.json": json.dumps(_graph(name), indent=2) + "\n"}


_PROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "walkgraph-PLUGIN"
version = "0.1.0"
description = "A plug-in for Walkgraph."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["walkgraph"]

# The name on the left is the first half of the components' names.
[project.entry-points."walkgraph.functions"]
PLUGIN = "PACKAGE"

[tool.hatch.build]
dev-mode-dirs = ["."]

[tool.hatch.build.targets.wheel]
packages = ["PACKAGE"]
"""

_FUNCTION = '''\
"""The components of the plug-in `PLUGIN`: each public function of this file is one."""

from typing import Annotated

from PIL import Image

from walkgraph.nodes import Between


def FUNCTION(picture: Image.Image, *, gain: Annotated[float, Between(0, 4)] = 1.5) -> Image.Image:
    """Makes a picture brighter or darker.

    Args:
        picture: Any picture.
        gain: Brightness is multiplied by this; 1 changes nothing.

    Returns:
        A picture of the same size.
    """
    return picture.point(lambda level: min(255, int(level * gain)))
'''

_TEST = """\
from PIL import Image

from PACKAGE import FUNCTION


def test_brightness_is_multiplied() -> None:
    picture = Image.new("RGB", (2, 1), (10, 100, 200))
    assert FUNCTION(picture, gain=2.0).getpixel((0, 0)) == (20, 200, 255)
    assert FUNCTION(picture, gain=1.0).tobytes() == picture.tobytes()
"""

_README = """\
# PLUGIN

A plug-in for Walkgraph. Its component `PLUGIN.FUNCTION` is the function in `PACKAGE/__init__.py`. From this folder:

```bash
walkgraph plugins add .
walkgraph deploy FUNCTION.json
walkgraph run FUNCTION FUNCTION --picture photo.png -o out.png
```

After you change the function, `walkgraph restart FUNCTION` takes the new code. `pytest` runs its test.
"""


def _graph(name: Named) -> dict[str, object]:
    function = name.function
    return {
        "format": "walkgraph/graph@1",
        "name": function,
        "description": f"Tries the component {name.component}.",
        "nodes": {function: {"component": name.component, "params": {"gain": "=gain"}}},
        "walks": {
            "once": {
                "inputs": {"picture": "image"},
                "body": [function],
                "edges": [["@in.picture", f"{function}.picture"], [f"{function}.image", "@out.image"]],
            }
        },
        "tasks": {
            function: {
                "label": function.replace("_", " ").capitalize(),
                "inputs": {"picture": {"modality": "image", "description": "Any picture."}},
                "outputs": ["image"],
                "params": {
                    "gain": {
                        "type": "number",
                        "default": 1.5,
                        "min": 0,
                        "max": 4,
                        "description": "Brightness is multiplied by this.",
                    }
                },
                "steps": [{"walk": "once", "with": {"picture": "@task.picture"}}],
            }
        },
    }
