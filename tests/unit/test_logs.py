"""One line an event, no secret, nothing that moves a terminal's cursor."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

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
