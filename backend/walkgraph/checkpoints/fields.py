"""Reading a folder's files, and a config key by key: every value has a type and bounds. An error names the key, the
value and the bound.

A folder comes from anywhere: a name in it may be a pipe, on which reading never ends, or a file of terabytes that takes
no room.
"""

import json
import math
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from walkgraph.errors import InvalidInput, NotFound
from walkgraph.graph.problems import nearest
from walkgraph.graph.reading.guard import read_json

MOST_BYTES = 16 * 2**20
"""The most bytes of a config or an index."""
_SHOWN = 40


@dataclass(frozen=True)
class Fields:
    """An object of a config. A key with null counts as missing. All methods raise InvalidInput."""

    values: Mapping[str, Any]
    at: str = ""
    """The object's path, as a prefix of its keys: `llm_config.`"""

    def whole(self, key: str, most: int, *, least: int = 1, default: int | None = None) -> int:
        value = self._value(key, default, f"a whole number from {least} to {most}")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(key, value, f"a whole number from {least} to {most}")
        return value

    def number(
        self, key: str, most: float, *, least: float | None = None, above: float = 0.0, default: float | None = None
    ) -> float:
        """A number of at least `least` if given, otherwise above `above`."""
        bounds = f"a number {f'above {above:g}' if least is None else f'from {least:g}'} to {most:g}"
        value = self._value(key, default, bounds)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value > most:
            raise self._wrong(key, value, bounds)
        if value < least if least is not None else value <= above:
            raise self._wrong(key, value, bounds)
        return float(value)

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self._value(key, default, "true or false")
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def word(self, key: str, allowed: Collection[str], default: str | None = None) -> str:
        known = " or ".join(json.dumps(word) for word in allowed)
        value = self._value(key, default, known)
        if not isinstance(value, str) or value not in allowed:
            raise InvalidInput(f"`{self.at}{key}` is {_shown(value)}, and only {known} can be run")
        return value

    def wholes(
        self, key: str, most: int, count: int, *, least: int = 1, default: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """A list of 1 to `count` integers."""
        said = f"a list of 1 to {count} whole numbers from {least} to {most}"
        value = self._value(key, default, said)
        if not isinstance(value, list | tuple) or not 0 < len(cast(list[Any], value)) <= count:
            raise self._wrong(key, value, said)
        for one in (found := cast(list[Any], value)):
            if isinstance(one, bool) or not isinstance(one, int) or not least <= one <= most:
                raise self._wrong(key, value, said)
        return tuple(found)

    def section(self, key: str) -> "Fields":
        value = self._value(key, None, "an object")
        if not isinstance(value, dict):
            raise self._wrong(key, value, "an object")
        return Fields(cast(dict[str, Any], value), f"{self.at}{key}.")

    def section_or_empty(self, key: str) -> "Fields":
        return Fields({}, f"{self.at}{key}.") if self.values.get(key) is None else self.section(key)

    def only(self, *known: str) -> None:
        """Refuse unknown keys."""
        for key in self.values:
            if key not in known:
                raise InvalidInput(f"`{self.at}{key[:80]}` is not a key of this config; {nearest(key[:80], known)}")

    def _value(self, key: str, default: Any, wanted: str) -> Any:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise InvalidInput(f"`{self.at}{key}` is missing in the config, and must be {wanted}")
        return value

    def _wrong(self, key: str, value: Any, wanted: str) -> InvalidInput:
        return InvalidInput(f"`{self.at}{key}` is {_shown(value)} in the config, and must be {wanted}")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def open_file(path: Path) -> BinaryIO:
    """Raises InvalidInput for anything else than a regular file that can be read."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to doesn't return.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        raise InvalidInput(f"`{path.name}` can't be read; check its permissions") from None
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise InvalidInput(f"`{path.name}` is not a file; fetch it again")
    return os.fdopen(file, "rb")


def read_file(path: Path, most: int) -> bytes:
    """The whole file. Raises InvalidInput for one of more than `most` bytes, or that can't be read."""
    try:
        with open_file(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > most:
                raise InvalidInput(f"`{path.name}` has {size} bytes, more than the {most} allowed; fetch it again")
            return stream.read(most)
    except OSError:
        raise InvalidInput(f"`{path.name}` can't be read; check its disk") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises NotFound or InvalidInput with the file's name."""
    if not path.is_file():
        raise NotFound(f"`{path.parent.name}` has no `{path.name}`")
    data = read_file(path, MOST_BYTES)
    try:
        value = read_json(data, MOST_BYTES)
    except InvalidInput as error:
        raise InvalidInput(f"`{path.name}` is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"`{path.name}` is not a JSON object; export it again")
    return cast(dict[str, Any], value)


def read_optional(path: Path) -> dict[str, Any]:
    """The object of a JSON file; empty if there is no such file."""
    return read_object(path) if path.is_file() else {}


def described(title: str, folder: Path, error: Exception) -> InvalidInput:
    """The error for a config of another kind of model."""
    return InvalidInput(f"the config in `{folder.name}` does not describe {title}: {error}")
