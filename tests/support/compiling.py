"""A process in which Triton compiles kernels: in that of the tests, they are interpreted.

It has imported torch and Triton, which takes longer than to compile, and runs each script in a fork.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys


class Compiler:
    def __init__(self) -> None:
        outside = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        command = (sys.executable, "-m", "tests.support.compiling")
        self._process = subprocess.Popen(command, env=outside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, script: str) -> str:
        """Return what the script prints. Raises AssertionError if it fails; its last words are on standard error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(script) + "\n")
        self._process.stdin.flush()
        code, printed = json.loads(self._process.stdout.readline())
        assert code == 0, printed
        return printed

    def close(self) -> None:
        self._process.communicate()


def serve() -> None:
    """Run the scripts that come, a line of JSON each, and answer with the exit code and the output of each."""
    import torch  # noqa: F401
    import triton  # noqa: F401

    for line in sys.stdin:
        reader, writer = os.pipe()
        if not os.fork():
            os.dup2(writer, sys.stdout.fileno())
            exec(json.loads(line), {"__name__": "__main__"})
            return
        os.close(writer)
        with os.fdopen(reader) as output:
            printed = output.read()
        _, status = os.wait()
        print(json.dumps([os.waitstatus_to_exitcode(status), printed]), flush=True)


if __name__ == "__main__":
    serve()
