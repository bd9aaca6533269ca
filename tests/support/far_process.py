"""A process on another host, which is asked by a line of JSON and answers with one."""

from __future__ import annotations

import json
import subprocess
from typing import Any


class FarProcess:
    """The process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, what: str, *given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([what, *given]), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)
