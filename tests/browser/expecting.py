"""`expect` as Playwright has it, but for waits on an element that isn't there yet.

While one is missing, each look of Playwright's own writes down what the whole page tells a screen reader, for a report
of its failure: a tenth of a second of the renderer, several times a wait. Here an element is waited for first.
"""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator
from playwright.sync_api import expect as plain

set_options = plain.set_options
NEEDS_NONE = ("not_", "to_have_count", "to_be_hidden")


class Patient:
    """The checks of one locator."""

    def __init__(self, locator: Locator, checks: Any) -> None:
        self._locator, self._checks = locator, checks

    def __getattr__(self, name: str) -> Any:
        check = getattr(self._checks, name)
        if name.startswith(NEEDS_NONE):
            return check

        def wait_and_check(*args: Any, timeout: float | None = None, **kwargs: Any) -> None:
            if "attached" not in kwargs and not (args and isinstance(args[0], list)):
                state = "visible" if name == "to_be_visible" and "visible" not in kwargs else "attached"
                self._locator.wait_for(state=state, timeout=timeout)
            check(*args, timeout=timeout, **kwargs)

        return wait_and_check


def expect(of: Any, message: str | None = None) -> Any:
    found: Any = plain(of, message)
    return Patient(of, found) if isinstance(of, Locator) else found
