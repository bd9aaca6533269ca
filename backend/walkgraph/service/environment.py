"""A service's settings as its operator may see them: values with their meaning, and no secrets."""

import ast
import inspect
import re
from functools import cache
from typing import Any

from pydantic import SecretStr

from walkgraph import plugins
from walkgraph import settings as settings_module
from walkgraph.settings import Settings
from walkgraph.wire.answers.environment import Environment, Plugin, Setting

_TESTS = ("fault_points", "fault")
"""Settings that only tests have a use for."""
_PASSWORD = re.compile(r"(?<=//)([^/@:]*):.*@")
_QUERY = re.compile(r"(?<=[?&])([^=&]*)=[^&]*")
HIDDEN = "…"


def environment_of(settings: Settings, version: str) -> Environment:
    """Reads which plug-ins are installed, so call it in a thread."""
    known = plugins.installed()
    return Environment(
        version=version,
        settings=[_setting(settings, name) for name in Settings.model_fields if name not in _TESTS],
        hosts=list(settings.call_hosts),
        plugins=[Plugin(name=name, installed=name in known) for name in settings.all_plugins()],
    )


def _setting(settings: Settings, name: str) -> Setting:
    value: Any = getattr(settings, name)
    return Setting(
        name=f"WALKGRAPH_{name.upper()}",
        value=_shown(value),
        source="set" if name in settings.model_fields_set else "default",
        secret=isinstance(value, SecretStr),
        meaning=meanings().get(name, ""),
    )


def _shown(value: Any) -> str:
    if value is None or isinstance(value, SecretStr):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))  # pyright: ignore[reportUnknownArgumentType]
    return without_secrets(str(value))


def without_secrets(text: str) -> str:
    """A URL without its password and the values of its query; other texts as they are."""
    if "://" not in text:
        return text
    return _QUERY.sub(rf"\1={HIDDEN}", _PASSWORD.sub(rf"\1:{HIDDEN}@", text))


@cache
def meanings() -> dict[str, str]:
    """Setting -> the text below it in the source, in one line."""
    (found,) = (
        node
        for node in ast.parse(inspect.getsource(settings_module)).body
        if isinstance(node, ast.ClassDef) and node.name == Settings.__name__
    )
    told: dict[str, str] = {}
    for field, text in zip(found.body, found.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            told[field.target.id] = " ".join(str(ast.literal_eval(text.value)).split())
    return told
