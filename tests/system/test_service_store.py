"""The store under kill -9, with a real process."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.safety.plugin import Figure, Scale
from walkgraph.store import queries
from walkgraph.store.session import Store

WRITER = """
import sys
from walkgraph.store import queries
from walkgraph.store.session import Store
store = Store.open(sys.argv[1])
number = 0
while True:
    store.write_now(queries.put_document, "graph", f"g{number}", str(number), None)
    print(number, flush=True)
    number += 1
"""


@pytest.mark.safety("R14")
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, scale: Scale, figure: Figure) -> None:
    chance = random.Random(14)
    kills = [1, 7, 40, *(chance.randrange(1, 60) for _ in range(scale(0, 197)))]
    for number, writes in enumerate(kills):
        killed(tmp_path / f"{number}.db", writes)
    figure("writers killed, nothing lost", len(kills), at_least=200)


def killed(path: Path, writes: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, f"sqlite:///{path}"], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(writes)]
    writer.kill()
    acknowledged += [int(line) for line in writer.stdout.read().split("\n") if line]
    writer.wait()
    writer.stdout.close()
    store = Store.open(f"sqlite:///{path}")
    found = {row.name for row in store.read_now(queries.list_documents, "graph")}
    assert {f"g{number}" for number in acknowledged} <= found
    with store._reads.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    store.close()
