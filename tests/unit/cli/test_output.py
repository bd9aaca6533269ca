"""The service's output reaches its readers and waits for none of them."""

from __future__ import annotations

import fcntl
import os
import select
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from walkgraph.cli import output


class Pipe(NamedTuple):
    read: int
    write: int
    size: int

    def fill(self) -> None:
        os.write(self.write, b"x" * self.size)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    read, write = os.pipe()
    yield Pipe(read, write, fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096))
    os.close(read)
    os.close(write)


def test_a_text_that_must_arrive_does_so_once_it_is_read(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(f"line {number}" for number in range(2000))
    with os.fdopen(pipe.write, "w", closefd=False) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        output.hand_over("at once")
        assert os.read(pipe.read, 100) == b"at once\n"
        pipe.fill()
        output.hand_over(text)
        read = b""
        while not read.endswith(b"line 1999\n"):
            assert select.select([pipe.read], [], [], 30)[0], "a thread writes it"
            read += os.read(pipe.read, 1 << 16)
    assert read == b"x" * pipe.size + text.encode() + b"\n"


def test_what_is_no_file_is_printed_to(capsys: pytest.CaptureFixture[str]) -> None:
    output.hand_over("a text")
    assert capsys.readouterr().out == "a text\n"


def test_a_service_waits_for_no_reader_of_its_log(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    with os.fdopen(pipe.write, "w", closefd=False) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        output.without_waiting()
        pipe.fill()
        output.complain("lost, as nobody reads", ["this too"])
        assert os.read(pipe.read, pipe.size) == b"x" * pipe.size
        output.note("read")
        assert os.read(pipe.read, 100) == b"read\n"
