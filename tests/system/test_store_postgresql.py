"""The store on a real PostgreSQL server: the tests of the store that SQLite passes, and who dies while it writes."""

from __future__ import annotations

import inspect
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlmodel import SQLModel

from tests.support.databases import PostgreSQL
from tests.system.test_service_store import WRITER
from tests.unit.store import test_keys, test_saving, test_store, test_traces
from walkgraph.errors import Conflict, InvalidInput
from walkgraph.store import queries
from walkgraph.store.session import Store, StoreBusy

OF_SQLITE = {
    "test_sqlite_is_set_up_for_many_readers_and_no_loss",
    "test_a_full_disk_is_a_typed_error_and_passes",
    # PostgreSQL's texts have no NUL; here it is refused.
    "test_text_is_stored_as_given",
}
SHARED = {
    name: found
    for module in (test_keys, test_saving, test_store, test_traces)
    for name, found in vars(module).items()
    if name.startswith("test_") and "store" in inspect.signature(found).parameters and name not in OF_SQLITE
}
globals().update(SHARED)


@contextmanager
def started() -> Iterator[PostgreSQL]:
    # Not in pytest's own folders: started by root, the server is another user's, and its socket's path is short.
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        found = PostgreSQL(Path(folder))
        found.start()
        yield found
        found.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    with started() as found:
        yield found


@pytest.fixture
def fragile() -> Iterator[PostgreSQL]:
    """One of its own, to be killed."""
    with started() as found:
        found.hasten()
        yield found


@pytest.fixture(scope="module")
def shared(server: PostgreSQL) -> str:
    return server.make()


@pytest.fixture
def store(shared: str) -> Iterator[Store]:
    """With nothing in it: emptied, since a database of its own is hundreds of files."""
    found = Store.open(shared)
    with found._writes.begin() as connection:
        names = ", ".join(f'"{table.name}"' for table in SQLModel.metadata.sorted_tables)
        connection.exec_driver_sql(f"TRUNCATE {names} RESTART IDENTITY")
    yield found
    found.close()


@pytest.fixture
def url(server: PostgreSQL) -> str:
    return server.make()


def test_most_of_the_stores_tests_run_here_too() -> None:
    assert len(SHARED) >= 20
    assert set(vars(test_store)) >= OF_SQLITE


def test_a_character_that_no_text_may_have_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        store.write_now(queries.put_document, "graph", "g", "\x00", None)


def test_a_database_has_one_service(url: str) -> None:
    first = Store.open(url)
    with pytest.raises(Conflict, match="another Walkgraph service"):
        Store.open(url)
    first.close()
    Store.open(url).close()


def test_of_two_who_saw_the_same_draft_one_writes(store: Store) -> None:
    etag = store.write_now(queries.put_document, "graph", "g", "{}", None).etag
    outcomes: list[str] = []
    both = threading.Barrier(2)

    def change(text: str) -> None:
        both.wait()
        try:
            store.write_now(queries.put_document, "graph", "g", text, etag)
            outcomes.append("written")
        except queries.PreconditionFailed:
            outcomes.append("refused")

    threads = [threading.Thread(target=change, args=(f"[{i}]",)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "written"]


@pytest.mark.safety("R14")
@pytest.mark.parametrize("writes", [1, 30])
def test_what_was_acknowledged_survives_the_writers_kill(url: str, writes: int) -> None:
    acknowledged = _killed(url, writes, lambda writer: writer.kill())
    _holds(url, acknowledged)


@pytest.mark.safety("R14")
def test_what_was_acknowledged_survives_the_servers_kill(fragile: PostgreSQL) -> None:
    other = Store.open(fragile.make())
    for writes in (1, 30):
        url = fragile.make()
        acknowledged = _killed(url, writes, lambda _writer: fragile.kill())
        with pytest.raises(StoreBusy):
            other.read_now(queries.is_new)
        fragile.start()
        assert other.read_now(queries.is_new)
        _holds(url, acknowledged)
    other.close()


def _killed(url: str, writes: int, kill: Callable[[subprocess.Popen[str]], None]) -> list[int]:
    """The writes that a process had acknowledged when something was killed."""
    command = [sys.executable, "-c", WRITER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(writes)]
        kill(writer)
        return acknowledged + [int(line) for line in writer.stdout.read().split("\n") if line]


def _holds(url: str, acknowledged: list[int]) -> None:
    store = Store.open(url)
    found = {row.name for row in store.read_now(queries.list_documents, "graph")}
    store.close()
    assert {f"g{number}" for number in acknowledged} <= found
    # Each was written by a transaction of its own, in order: none is missing in between.
    assert found == {f"g{number}" for number in range(len(found))}


def test_a_wrong_address_is_told_without_its_password() -> None:
    with pytest.raises(StoreBusy) as told:
        Store.open("postgresql://someone:secret@127.0.0.1:1/none")
    assert "secret" not in str(told.value)
    assert "127.0.0.1:1/none" in str(told.value)
