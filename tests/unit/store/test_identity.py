"""A database file that is removed or replaced while it is open: nothing is acknowledged that nobody will see."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlmodel import Session

from walkgraph.errors import NotFound
from walkgraph.store import queries
from walkgraph.store.session import Store, StoreLost


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "w.db"


@pytest.fixture
def store(path: Path):
    path.parent.mkdir()
    found = Store.open(f"sqlite:///{path}")
    found.write_now(queries.put_document, "graph", "before", "{}", None)
    yield found
    found.close()


def save(store: Store, name: str) -> None:
    store.write_now(queries.put_document, "graph", name, "{}", None)


def names(store: Store) -> set[str]:
    return {row.name for row in store.read_now(queries.list_documents, "graph")}


def moved(path: Path, to: str) -> Path:
    """The database with what belongs to it, in a folder beside it."""
    folder = path.parent.parent / to
    folder.mkdir(exist_ok=True)
    for part in sorted(path.parent.glob(f"{path.name}*")):
        part.rename(folder / part.name)
    return folder / path.name


def test_nothing_is_saved_into_a_file_that_was_removed(store: Store, path: Path) -> None:
    assert store.fault is None
    path.unlink()
    assert "was removed" in (store.fault or "")
    with pytest.raises(StoreLost, match="move it back, or restart"):
        save(store, "after")
    assert not path.exists(), "no empty file takes its place"
    # What was there can still be read, by as many as like.
    with ThreadPoolExecutor(20) as pool:
        assert set(map(frozenset, pool.map(lambda _: names(store), range(60)))) == {frozenset({"before"})}


def test_a_file_that_comes_back_is_written_again(store: Store, path: Path) -> None:
    away = moved(path, "away")
    with pytest.raises(StoreLost):
        save(store, "lost")
    moved(away, path.parent.name)
    assert store.fault is None
    save(store, "after")
    assert names(store) == {"before", "after"}


def test_another_file_is_neither_written_nor_read(store: Store, path: Path) -> None:
    save(store, "kept")
    other = Store.open(f"sqlite:///{path.parent / 'other.db'}")
    save(other, "theirs")
    other.close()
    old = path.rename(path.with_name("old.db"))
    (path.parent / "other.db").rename(path)
    content = path.read_bytes()
    assert "was replaced" in (store.fault or "")
    for _ in range(2):
        with pytest.raises(StoreLost, match="restart the service to use the new file"):
            save(store, "after")
    assert names(store) == {"before", "kept"}
    assert path.read_bytes() == content
    # The log stays at its path, and SQLite would replay it into the new file.
    assert path.with_name(f"{path.name}-wal").stat().st_size == 0
    store.close()
    for found, expected in ((path, {"theirs"}), (old, {"before", "kept"})):
        again = Store.open(f"sqlite:///{found}")
        assert names(again) == expected
        again.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.parametrize("instead", [None, b""])
def test_a_log_that_is_gone_takes_no_writes(store: Store, path: Path, instead: bytes | None) -> None:
    log = path.with_name(f"{path.name}-wal")
    log.unlink()
    if instead is not None:
        other = path.with_name("other")
        other.write_bytes(instead)
        other.rename(log)
    with pytest.raises(StoreLost, match="`-wal`"):
        save(store, "after")
    # All that was acknowledged is in the database by now, whatever ends the service.
    with sqlite3.connect(f"file:{path}?immutable=1", uri=True) as connection:
        assert connection.execute("SELECT name FROM document").fetchall() == [("before",)]
    connection.close()


def test_a_file_that_goes_while_it_is_written_acknowledges_nothing(store: Store, path: Path) -> None:
    def leaving(session: Session) -> None:
        queries.put_document(session, "graph", "half", "{}", None)
        path.rename(path.with_name("elsewhere"))

    with pytest.raises(StoreLost):
        store.write_now(leaving)
    path.with_name("elsewhere").rename(path)
    save(store, "after")


def test_a_query_that_fails_says_so_itself(store: Store) -> None:
    with pytest.raises(NotFound):
        store.read_now(queries.get_document, "graph", "none")
    with pytest.raises(NotFound):
        store.write_now(queries.delete_document, "graph", "none", None)


def test_the_file_behind_a_link_is_the_one_that_counts(path: Path) -> None:
    path.parent.mkdir()
    real, link = path.with_name("real.db"), path
    real.touch(mode=0o600)
    link.symlink_to(real.name)
    store = Store.open(f"sqlite:///{link}")
    save(store, "one")
    real.rename(path.with_name("away.db"))
    with pytest.raises(StoreLost):
        save(store, "two")
    path.with_name("away.db").rename(real)
    save(store, "three")
    store.close()
