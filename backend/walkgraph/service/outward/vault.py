"""Secrets by name, a folder of files: `NAME` has the value, `NAME.hosts` the servers that may receive it, one a line.

Documents name a secret as `secret:NAME`. Its value is read for each call, sent, and kept nowhere.
"""

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from walkgraph.errors import NotFound, Refused
from walkgraph.servers import Server, Url, parse_servers
from walkgraph.settings import write_private

LEAST_CHARACTERS = 8
"""A shorter one would also be a part of texts that have nothing to do with it."""
MOST_BYTES = 16 * 1024
HOSTS = ".hosts"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Secret:
    """A secret without its value."""

    name: str
    servers: tuple[Server, ...]


class Vault:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def value_for(self, name: str, url: Url) -> str:
        """The secret's value, for a request to this URL. Raises NotFound, and Refused if the server may not get it or a
        file can't be trusted."""
        value = _read(self._path(name))
        if value is None:
            raise NotFound(f"there is no secret `{name}`; an operator adds it with `walkgraph secrets set {name}`")
        if not any(server.covers(url) for server in self._servers(name)):
            raise Refused(f"the secret `{name}` may not be sent to `{url.origin}`; its operator lists its servers")
        return checked(value)

    def set(self, name: str, value: str, servers: Iterable[str]) -> Secret:
        """Write a secret. Raises Refused for a name, a value or a server that can't be used."""
        path, made = self._path(name), Secret(name, parse_servers(servers))
        if not made.servers:
            raise Refused("name at least one server that may receive it")
        checked(value)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # First who may get it: there is no moment in which the new value has the old servers.
        path.unlink(missing_ok=True)
        write_private(path.with_name(name + HOSTS), "".join(f"{server}\n" for server in made.servers))
        write_private(path, value + "\n")
        return made

    def listed(self) -> list[Secret]:
        """All secrets, sorted by name."""
        if not self._folder.is_dir():
            return []
        names = sorted(path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
        return [Secret(name, self._servers(name)) for name in names]

    def remove(self, name: str) -> None:
        path = self._path(name)
        if not path.is_file():
            raise NotFound(f"there is no secret `{name}`; see `walkgraph secrets list`")
        path.unlink()
        path.with_name(name + HOSTS).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise Refused("the name of a secret has at most 64 small letters, digits, `-` and `_`")
        return self._folder / name

    def _servers(self, name: str) -> tuple[Server, ...]:
        text = _read(self._path(name).with_name(name + HOSTS), private=False) or ""
        return parse_servers(line for line in text.splitlines() if line.strip())


def checked(value: str) -> str:
    """The value, if a header can hold it. Raises Refused."""
    if not LEAST_CHARACTERS <= len(value) <= MOST_BYTES:
        raise Refused(f"a secret has {LEAST_CHARACTERS} to {MOST_BYTES} characters")
    if not (value.isascii() and value.isprintable()) or value != value.strip():
        raise Refused("a secret is one line of printable ASCII, without spaces around it")
    return value


def _read(path: Path, *, private: bool = True) -> str | None:
    """The text of a file without the end of its last line; None if there is none. Raises Refused for one that others
    could read, or that is no such text."""
    try:
        # A pipe in its place must not hold the caller up.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError:
        raise Refused(
            f"the file of the secret `{path.stem}` can't be read; its owner must be the service's user"
        ) from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            raise Refused(f"the file of the secret `{path.stem}` is no text of at most {MOST_BYTES} bytes")
        if private and found.st_mode & _OTHERS:
            raise Refused(f"other users can read the file of the secret `{path.stem}`; set its mode to 0600")
        data = os.read(handle, MOST_BYTES + 1)
    finally:
        os.close(handle)
    try:
        return data.decode("ascii").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Refused(f"the file of the secret `{path.stem}` is not ASCII") from None
