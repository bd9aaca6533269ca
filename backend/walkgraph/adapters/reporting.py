"""The error of a plug-in's own code as clients see it: its file, line and text, without secrets; the log has all."""

from __future__ import annotations

import logging
import re
import traceback
from pathlib import Path

from walkgraph.abi.calls import CallFailed
from walkgraph.errors import Refused, sendable, without_codes
from walkgraph.nodes import BadInput
from walkgraph.settings import Settings, environment_secrets, read_token

_log = logging.getLogger(__name__)

_PATH = re.compile(r"(?<![\w.:/])/(?:[^\s/'\"`:]+/)+([^\s/'\"`:]*)")
MOST_CHARACTERS = 300
"""The most of an exception's text that a client gets."""


class Reporter:
    """One component: its name, and the folder that its package is in."""

    def __init__(self, name: str, package: Path) -> None:
        self._name, self._package = name, package

    def failed(self, node: str, raised: BaseException) -> CallFailed:
        """The error of a call. The traceback goes to the log."""
        if isinstance(raised, CallFailed):
            return raised
        if isinstance(raised, BadInput):
            return CallFailed(without_secrets(_first_lines(str(raised))) or "bad input", code="invalid_input")
        _log.error("`%s` raised in node `%s`", self._name, node, exc_info=raised)
        return CallFailed(self._sentence(raised))

    def not_loaded(self, raised: BaseException) -> Refused:
        """The error of a deployment whose component can't be loaded. The traceback goes to the log."""
        _log.error("`%s` can't be loaded", self._name, exc_info=raised)
        return Refused(f"`{self._name}` can't be loaded: {self._sentence(raised)}")

    def _sentence(self, raised: BaseException) -> str:
        text = without_paths(without_secrets(_first_lines(str(raised))))
        return f"{self._place(raised)}: {type(raised).__name__}{': ' if text else ''}{text}"

    def _place(self, raised: BaseException) -> str:
        """`package/file.py:12`: the innermost line that is of the package; else the component's name."""
        if isinstance(raised, SyntaxError) and raised.filename and self._is_own(raised.filename):
            return f"{self._shown(raised.filename)}:{raised.lineno}"
        own = [one for one in traceback.extract_tb(raised.__traceback__) if self._is_own(one.filename)]
        return f"{self._shown(own[-1].filename)}:{own[-1].lineno}" if own else f"`{self._name}`"

    def _is_own(self, file: str) -> bool:
        return Path(file).is_relative_to(self._package)

    def _shown(self, file: str) -> str:
        return Path(file).relative_to(self._package.parent).as_posix()


def _first_lines(text: str) -> str:
    text = " ".join(text.split())
    return sendable(text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}...")


def without_paths(text: str) -> str:
    """Keep only the last part of paths from the root of the file system."""
    return _PATH.sub(r".../\1", text)


def without_secrets(text: str) -> str:
    """The text without the service's secrets, and without values of the environment that look like some."""
    settings = Settings()
    known = {*settings.secrets(), *environment_secrets(), read_token(settings) or ""}
    for secret in sorted(filter(None, known), key=len, reverse=True):
        text = text.replace(secret, "***")
    return without_codes(text)
