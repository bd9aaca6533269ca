"""`python -m tests.support.leaking WORDS`: the command line with a leak planted in it, which a soak must find."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from typing import IO

from walkgraph.cli.main import main

SECONDS = 0.1
BYTES = 400_000
"""Every `SECONDS`: 4 MB, and ten open files, a second."""
_kept: list[tuple[bytearray, IO[bytes]]] = []


def leak() -> None:
    while True:
        block = bytearray(BYTES)
        block[::4096] = b"x" * len(block[::4096])
        _kept.append((block, tempfile.TemporaryFile()))  # noqa: SIM115 (that it stays open is the leak)
        time.sleep(SECONDS)


if __name__ == "__main__":
    threading.Thread(target=leak, daemon=True).start()
    sys.exit(main())
