"""The answer about a service's settings."""

from typing import Literal, TypedDict


class Setting(TypedDict):
    name: str
    """The environment variable."""
    value: str
    """As text, without secrets; empty if there is none."""
    source: Literal["set", "default"]
    secret: bool
    """It has a value that is not shown."""
    meaning: str


class Plugin(TypedDict):
    name: str
    installed: bool
    """False: it is listed, and its package is missing."""


class Environment(TypedDict):
    """The settings of the operator."""

    version: str
    settings: list[Setting]
    hosts: list[str]
    """Servers that nodes may call."""
    plugins: list[Plugin]
    """Those that are enabled."""
