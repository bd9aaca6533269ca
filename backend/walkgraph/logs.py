"""Logs of the service's process: one line an event, control characters escaped, secrets left out."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal

import structlog

_CODE = re.compile(r"(code=|bearer[ .]|\bwg_[0-9a-f]{8}_)[\w\-.%]+", re.IGNORECASE)


def configure(level: str, form: Literal["json", "text"], secrets: tuple[str, ...] = ()) -> None:
    """Send everything, the libraries' own logs too, to standard error."""
    scrub = _Scrubber(secrets)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        scrub,
    ]
    render: Any = structlog.processors.JSONRenderer() if form == "json" else _plain
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, scrub, render],
        )
    )
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for chatty in ("alembic", "httpx", "httpcore", "watchdog", "asyncio", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )  # fmt: skip


def without_codes(text: str) -> str:
    """Without what lets somebody in, as far as its form tells: codes, bearer tokens, keys."""
    return _CODE.sub(r"\1***", text)


def reclaim() -> None:
    """Take back the logs of the server from libraries that gave them handlers of their own; its access log stays off:
    it would write whole addresses."""
    for name in ("uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True


class _Scrubber:
    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = tuple(secret for secret in secrets if secret)

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        return {key: self._clean(value) for key, value in event.items()}

    def _clean(self, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        for secret in self._secrets:
            value = value.replace(secret, "***")
        return without_codes(value)


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """For a terminal: time, level, what happened, details; nothing in it can start a new line or move the cursor."""
    when, level, what = str(event.pop("timestamp", ""))[11:19], event.pop("level", ""), event.pop("event", "")
    event.pop("logger", None)
    trace = event.pop("exception", None)
    details = " ".join(f"{key}={_escaped(value)}" for key, value in event.items())
    line = f"{when} {level:<7} {_escaped(what)} {details}".rstrip()
    return line if trace is None else line + "\n" + "\n".join(_escaped(part) for part in str(trace).split("\n"))


def _escaped(value: Any) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
