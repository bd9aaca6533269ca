"""Processes of clients who begin together. Each runs a script that reads its orders as a line of JSON from standard
input, says `ready`, waits for a line, and writes what it measured as a line of JSON."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


def together(script: Path, orders: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The measurements of a process for each of these orders. Raises RuntimeError with what one said in place of
    `ready`."""
    with ExitStack() as held:
        processes = [held.enter_context(_process(script)) for _ in orders]
        for one, its in zip(processes, orders, strict=True):
            _tell(one, json.dumps(its))
        for one in processes:
            if (said := _heard(one)) != "ready":
                raise RuntimeError(said or "a process of clients ended before it was ready")
        for one in processes:
            _tell(one, "begin")
        return [json.loads(_heard(one)) for one in processes]


@contextmanager
def _process(script: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(script)], stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        except BaseException:
            # It may wait for the others.
            process.kill()
            raise


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
