"""Logs of the service's process: one line per event, control characters escaped, secrets removed, and a limited number
of lines of one kind per minute."""

from __future__ import annotations

import logging
import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Literal, NamedTuple, Protocol, TextIO, cast

import structlog

from walkgraph.errors import without_codes

WINDOW_SECONDS = 60.0
LINES = 60
"""The most lines of one kind in a window; the number left out is logged when the window ends."""
TRACED_LINES = 6
"""The same for lines with a traceback, which are long."""
KINDS = 128
"""The most kinds counted separately in a window. Libraries put clients' data into their messages, which makes each a
new kind."""
LEFT_OUT = "lines left out"
OTHERS = "others"
"""Common name of the kinds beyond that number."""

_WHAT = 200
"""Characters of a message that identify its kind."""


def configure(level: str, form: Literal["json", "text"], secrets: tuple[str, ...] = ()) -> None:
    """Send all logs, including libraries', to standard error."""
    scrub = _Scrubber(secrets)
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _traced_errors_only,
        structlog.processors.format_exc_info,
        scrub,
    ]
    render: Any = structlog.processors.JSONRenderer() if form == "json" else _plain
    handler = Bounded(NeverWaiting(sys.stderr))
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


def reclaim() -> None:
    """Take back the loggers of libraries that installed their own handlers, which lack our format, secrets and bounds.
    The server's access log stays off, as it would contain whole addresses."""
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and (logger.handlers or not logger.propagate):
            logger.handlers.clear()
            logger.propagate = True
            logger.setLevel(logging.WARNING)
    logging.getLogger("uvicorn.access").disabled = True


class Kind(NamedTuple):
    """The common part of lines of one kind."""

    logger: str
    level: int
    what: str
    """The message before its values are filled in, and for an error its type."""


class Bounds:
    """Limits the lines of each kind in a window of time. Pure: the clock is an argument."""

    def __init__(self) -> None:
        self._windows: dict[Kind, _Window] = {}

    def admits(self, kind: Kind, lines: int, now: float) -> bool:
        """True if one more line may be written; otherwise it is counted. `lines`: the most of this kind in a window."""
        if kind not in self._windows and len(self._windows) >= KINDS:
            kind = Kind(kind.logger, kind.level, OTHERS)
        window = self._windows.setdefault(kind, _Window(now))
        if window.written < lines:
            window.written += 1
            return True
        window.left_out += 1
        return False

    @property
    def leaves_out(self) -> bool:
        """True if there will be something to report when a window ends."""
        return any(window.left_out for window in self._windows.values())

    def ended(self, now: float) -> list[tuple[Kind, int]]:
        """Counts of lines left out in windows that are over; these windows are removed."""
        over = {kind: window for kind, window in self._windows.items() if now - window.began >= WINDOW_SECONDS}
        for kind in over:
            del self._windows[kind]
        return [(kind, window.left_out) for kind, window in over.items() if window.left_out]


class _Window:
    __slots__ = ("began", "left_out", "written")

    def __init__(self, began: float) -> None:
        self.began = began
        self.written = 0
        self.left_out = 0


class LineStream(Protocol):
    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


class Bounded(logging.StreamHandler[LineStream]):
    """Writes lines that `Bounds` admits and, once a window is over, the number it left out, even if nothing follows and
    at the end of the process. Debug lines are not bounded, as whoever enables them wants all."""

    def __init__(self, stream: LineStream, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now = now
        self._bounds = Bounds()
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        # `handle` holds the lock.
        kind, traced = _kind_of(record)
        if record.levelno <= logging.DEBUG or kind.what == LEFT_OUT:
            super().emit(record)
            return
        now = self._now()
        self._tell(now)
        if self._bounds.admits(kind, TRACED_LINES if traced else LINES, now):
            super().emit(record)
        elif self._timer is None:
            self._wait()

    def close(self) -> None:
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            self._tell(math.inf)
        finally:
            self.release()
        super().close()

    def _wake(self) -> None:
        """Schedule the ends of later windows."""
        self.acquire()
        try:
            self._timer = None
            self._tell(self._now())
            if self._bounds.leaves_out:
                self._wait()
        finally:
            self.release()

    def _wait(self) -> None:
        self._timer = threading.Timer(WINDOW_SECONDS, self._wake)
        self._timer.daemon = True
        self._timer.start()

    def _tell(self, now: float) -> None:
        for kind, count in self._bounds.ended(now):
            values = {"of": kind.what, "count": count, "seconds": WINDOW_SECONDS}
            structlog.get_logger(kind.logger).log(kind.level, LEFT_OUT, **values)


class NeverWaiting:
    """A stream whose reader may have stopped: where a pipe takes no more, a line is lost, and nobody waits for it."""

    def __init__(self, stream: TextIO) -> None:
        self.lost = 0
        self._stream, self._cut = stream, False
        try:
            self._file: int | None = stream.fileno()
        except (OSError, ValueError, AttributeError):
            self._file = None  # it is no file of the system's

    def write(self, text: str) -> int:
        if self._file is None:
            return self._stream.write(text)
        # A line that was cut is ended first.
        data = (b"\n" if self._cut else b"") + text.encode(errors="backslashreplace")
        for start in range(0, len(data), select.PIPE_BUF):
            if not self._takes(self._file):
                self.lost, self._cut = self.lost + 1, self._cut or start > 0
                return len(text)
            os.write(self._file, data[start : start + select.PIPE_BUF])
        self._cut = False
        return len(text)

    def flush(self) -> None:
        if self._file is None:
            self._stream.flush()

    @staticmethod
    def _takes(file: int) -> bool:
        """So many bytes at once, that is."""
        poller = select.poll()
        poller.register(file, select.POLLOUT)
        return any(events & select.POLLOUT for _, events in poller.poll(0))


def _kind_of(record: logging.LogRecord) -> tuple[Kind, bool]:
    """The kind of a record, and true if its line has a traceback."""
    values: Mapping[str, Any] = record.msg if isinstance(record.msg, dict) else {"event": record.msg}
    what = str(values.get("event", ""))
    traced = record.levelno >= logging.ERROR and (record.exc_info is not None or "exception" in values)
    if record.exc_info and record.exc_info[0] is not None:
        what = f"{what.strip()} ({record.exc_info[0].__name__})"
    return Kind(record.name, record.levelno, what[:_WHAT]), traced


def _traced_errors_only(_logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Below level error, keep the exception's name without its traceback: libraries log clients' mistakes this way."""
    raised = event.get("exc_info")
    if raised and event["level"] in ("debug", "info", "warning"):
        del event["exc_info"]
        kind = raised[0] if isinstance(raised, tuple) else type(raised)
        event["error"] = getattr(kind, "__name__", None)
    return event


class _Scrubber:
    def __init__(self, secrets: tuple[str, ...]) -> None:
        # Longer ones first: a secret may be a part of another.
        self._secrets = tuple(sorted(filter(None, secrets), key=len, reverse=True))

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        # Keys with `_` are the logging library's own: the record, for one.
        return {key: value if key.startswith("_") else self._clean(value) for key, value in event.items()}

    def _clean(self, value: Any) -> Any:
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                for secret in self._secrets:
                    value = value.replace(secret, "***")
                return without_codes(value)
            case dict():
                return {self._clean(key): self._clean(inner) for key, inner in cast(dict[Any, Any], value).items()}
            case list() | tuple():
                return [self._clean(inner) for inner in cast(list[Any], value)]
            case _:
                return self._clean(str(value))


def _plain(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
    """Format for a terminal: time, level, message, details; nothing in it can start a new line or move the cursor."""
    when, level, what = str(event.pop("timestamp", ""))[11:19], event.pop("level", ""), event.pop("event", "")
    event.pop("logger", None)
    trace = event.pop("exception", None)
    details = " ".join(f"{key}={_escaped(value)}" for key, value in event.items())
    line = f"{when} {level:<7} {_escaped(what)} {details}".rstrip()
    return line if trace is None else line + "\n" + "\n".join(_escaped(part) for part in str(trace).split("\n"))


def _escaped(value: Any) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
