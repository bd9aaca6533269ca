"""Run pages of the documentation, each in a folder and with names of its own: `python pages.py PAGES.json OUT.json`.

One process for all of them, so that what they import is imported once. It is no part of the tests' own process: pages
start event loops, and change what a process has.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def main(source: str, target: str) -> None:
    """`source`: [{"folder": ..., "blocks": [{"where", "language", "code", "file"}]}]; `target` gets what each printed.

    Raises SystemExit with the place of the first block that fails.
    """
    printed: dict[str, str] = {}
    for page in json.loads(Path(source).read_text()):
        folder = Path(page["folder"])
        folder.mkdir(parents=True)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        names: dict[str, Any] = {"__name__": "__main__"}
        for block in page["blocks"]:
            try:
                printed[block["where"]] = run(block, names)
            except Exception as error:
                raise SystemExit(f"{block['where']}\n{block['code']}\n{type(error).__name__}: {error}") from error
        sys.path.remove(str(folder))
    Path(target).write_text(json.dumps(printed))


def run(block: dict[str, Any], names: dict[str, Any]) -> str:
    """Runs one block and returns its output; `names` are the variables of its page so far."""
    if block["file"] is not None:
        Path(block["file"]).parent.mkdir(parents=True, exist_ok=True)
        Path(block["file"]).write_text(block["code"])
        return ""
    if block["language"] == "python":
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):
            exec(compile(block["code"], block["where"], "exec"), names)
        return heard.getvalue()
    command = ["bash", "-euo", "pipefail", "-c", block["code"]]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if answer.returncode:
        raise RuntimeError(f"exit code {answer.returncode}\n{answer.stdout}\n{answer.stderr}")
    return answer.stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
