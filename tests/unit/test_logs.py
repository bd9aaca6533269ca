"""One line an event, no secret, nothing that moves a terminal's cursor."""

from __future__ import annotations

import fcntl
import io
import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from walkgraph import logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    before = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = before[0], before[1]
    structlog.reset_defaults()


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_event_is_one_line_without_secrets(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", form, ("s3cret-token",))  # type: ignore[arg-type]
    log = structlog.get_logger("test")
    log.info("request", path="/x\r\n\x1b[31mred", header="Bearer abc.def", url="/studio/?code=xyz", key="s3cret-token")
    logging.getLogger("library").warning("a line\nwith s3cret-token and %s", "code=123")
    logging.getLogger("library").warning("PUT /wg_0123abcd_k3y-of_somebody")
    written = capsys.readouterr().err
    assert len(written.strip().split("\n")) == 3
    for secret in ("s3cret", "abc.def", "xyz", "code=123", "k3y", "\x1b", "\r"):
        assert secret not in written
    if form == "json":
        first = json.loads(written.split("\n")[0])
        assert first["path"] == "/x\r\n\x1b[31mred"
        assert first["key"] == "***"


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_secret_inside_a_value_is_removed_too(form: Any, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", form, ("s3cret", "s3cret-token"))
    headers = {"authorization": "Bearer abc.def", "s3cret-token": ["s3cret-token", ("s3cret",)]}
    structlog.get_logger("w").info("asked", headers=headers, error=ValueError("s3cret-token in /x"), count=3, ok=True)
    logging.getLogger("library").warning("sent %s", headers)
    written = capsys.readouterr().err
    assert "s3cret" not in written
    assert "token" not in written
    assert "abc.def" not in written
    assert "3" in written


def test_below_the_level_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "json")
    structlog.get_logger("test").info("quiet")
    assert capsys.readouterr().err == ""


def test_the_servers_access_log_stays_off(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    logging.getLogger("uvicorn.access").addHandler(logging.StreamHandler())
    logs.reclaim()
    logging.getLogger("uvicorn.access").info('GET /studio/?code=abc"')
    assert capsys.readouterr().err == ""
    logging.getLogger("uvicorn.access").disabled = False


# ── floods ──────────────────────────────────────────────────────────────────────────────────────


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def configured(level: Any = "info") -> Clock:
    logs.configure(level, "json")
    handler()._now = clock = Clock()
    return clock


def handler() -> logs.Bounded:
    (found,) = logging.getLogger().handlers
    assert isinstance(found, logs.Bounded)
    return found


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_of_many_lines_of_a_kind_their_number_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    clock = configured()
    library, own = logging.getLogger("library"), structlog.get_logger("own")
    for number in range(1000):
        library.warning("no request from %s", number)
        own.info("client left", path=f"/{number}")
        clock.now += 0.01
    library.warning("something else")
    found = lines(capsys)
    assert len(found) == 2 * logs.LINES + 1
    assert found[-1]["event"] == "something else"
    # The next one of any kind tells it, and begins another window.
    clock.now += logs.WINDOW_SECONDS
    library.warning("no request from %s", "me")
    told = {line["logger"]: line for line in lines(capsys)[:-1]}
    for name, what in (("library", "no request from %s"), ("own", "client left")):
        shown = {key: told[name][key] for key in ("event", "of", "count", "seconds")}
        assert shown == {"event": logs.LEFT_OUT, "of": what, "count": 1000 - logs.LINES, "seconds": 60.0}
    assert told["library"]["level"] == "warning"


def test_what_was_left_out_is_told_where_nothing_follows(capsys: pytest.CaptureFixture[str]) -> None:
    clock = configured()
    for _ in range(logs.LINES + 5):
        structlog.get_logger("own").info("client left")
    timer = handler()._timer
    assert timer is not None
    assert timer.daemon
    lines(capsys)
    clock.now += logs.WINDOW_SECONDS
    timer.cancel()
    handler()._wake()
    assert [(line["event"], line["count"]) for line in lines(capsys)] == [(logs.LEFT_OUT, 5)]
    assert handler()._timer is None


def test_the_end_of_the_process_tells_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    for _ in range(logs.LINES + 5):
        structlog.get_logger("own").info("client left")
    lines(capsys)
    handler().close()
    assert [line["count"] for line in lines(capsys)] == [5]


def test_kinds_that_clients_make_are_bounded_together(capsys: pytest.CaptureFixture[str]) -> None:
    clock = configured()
    for number in range(10_000):
        logging.getLogger("library").warning(f"no handler for {number}")  # noqa: G004 - as libraries do
    assert len(lines(capsys)) <= logs.KINDS + logs.LINES
    clock.now += logs.WINDOW_SECONDS
    logging.getLogger("library").warning("next")
    assert [line.get("of") for line in lines(capsys)] == [logs.OTHERS, None]


def test_an_errors_origin_is_told_a_few_times_and_a_warnings_not(capsys: pytest.CaptureFixture[str]) -> None:
    configured()
    for kind in (KeyError, ValueError):
        for _ in range(20):
            try:
                raise kind
            except kind:
                logging.getLogger("library").exception("failed")
                logging.getLogger("library").warning("bad message", exc_info=True)
    found = lines(capsys)
    traced = [line for line in found if "exception" in line]
    assert len(traced) == 2 * logs.TRACED_LINES, "each kind of error by itself"
    warned = [line for line in found if line["level"] == "warning"]
    assert len(warned) == 40
    assert {line["error"] for line in warned} == {"KeyError", "ValueError"}


def test_debugging_is_not_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    configured("debug")
    for _ in range(1000):
        structlog.get_logger("own").debug("request")
    assert len(lines(capsys)) == 1000


def test_logs_of_libraries_with_handlers_of_their_own_are_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json", ("s3cret-token",))
    library = logging.getLogger("library.of.its.own")
    library.propagate = False
    library.addHandler(logging.StreamHandler())
    logs.reclaim()
    library.warning("with s3cret-token")
    assert [line["event"] for line in lines(capsys)] == ["with ***"]


def test_a_line_that_a_full_pipe_does_not_take_is_lost_and_the_next_one_is_whole() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as read, os.fdopen(writer, "w") as write:
        size = fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        stream = logs.NeverWaiting(write)
        stream.write("a" * (size - 1) + "\n")
        stream.write("lost\n")
        assert stream.lost == 1
        assert read.read(size).endswith(b"a\n")
        stream.write("next\n")
        assert read.readline() == b"next\n"
        stream.write("b" * 2 * size + "\n")
        assert read.read(size) == b"b" * size
        stream.write("whole\n")
        assert read.readline() == b"\n"
        assert read.readline() == b"whole\n"
        assert stream.lost == 2


def test_a_stream_that_is_no_file_is_written_as_it_is() -> None:
    text = io.StringIO()
    stream = logs.NeverWaiting(text)
    stream.write("a line\n")
    stream.flush()
    assert text.getvalue() == "a line\n"
