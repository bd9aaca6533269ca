"""The common code of the service's processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

THREADS = """
import os, sys, threading
from tests.support.sampling import thread_heaps
from walkgraph.wire.processes.common import one_heap

if sys.argv[1] == "one":
    one_heap()
there = threading.Barrier(4)


def allocate() -> None:
    kept = [bytearray(size) for size in range(1_000, 50_000, 1_000)]
    there.wait(60)


threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(thread_heaps(os.getpid()))
"""


@pytest.mark.parametrize(("heap", "more"), [("one", False), ("each", True)])
def test_threads_share_a_heap_once_a_process_asked_for_it(heap: str, more: bool) -> None:
    ran = subprocess.run([sys.executable, "-c", THREADS, heap], capture_output=True, text=True, check=True, timeout=60)
    assert (int(ran.stdout) > 0) == more
