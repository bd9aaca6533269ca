"""Keys and the audit log in the store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from walkgraph.errors import Conflict, NotFound
from walkgraph.store import keys, queries
from walkgraph.store.session import Store
from walkgraph.store.tables import AuditEntry, Key, Run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(f"sqlite:///{tmp_path / 'w.db'}")
    yield found
    found.close()


def key(id_: str, name: str, at: float = 1.0, **more: object) -> Key:
    return Key(id=id_, name=name, digest="0" * 64, scopes="infer", created_at=at, **more)


def entry(at: float, outcome: str = "done", **more: str) -> AuditEntry:
    fields = {"caller": "token", "caller_name": "", "address": "", "action": "graph.put", "target": "g", **more}
    return AuditEntry(at=at, outcome=outcome, **fields)


def test_names_of_valid_keys_are_their_own(store: Store) -> None:
    store.write_now(keys.add_key, key("a", "robot"))
    with pytest.raises(Conflict, match="there is a key `robot` already"):
        store.write_now(keys.add_key, key("b", "robot"))
    store.write_now(keys.revoke_key, "a", 5.0)
    store.write_now(keys.add_key, key("b", "robot"))
    store.write_now(keys.add_key, key("c", "gone", expires_at=2.0))
    store.write_now(keys.add_key, key("d", "gone", 2.0))
    assert [row.id for row in store.read_now(keys.list_keys)] == ["a", "b", "c", "d"]
    with pytest.raises(Conflict, match="revoked already"):
        store.write_now(keys.revoke_key, "a", 6.0)
    with pytest.raises(NotFound):
        store.write_now(keys.revoke_key, "zz", 6.0)


def test_keys_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_KEYS", 2)
    monkeypatch.setattr(keys, "KEPT_KEYS", 3)
    for number in range(5):
        store.write_now(keys.add_key, key(f"{number}", f"k{number}"))
        if number < 4:
            store.write_now(keys.revoke_key, f"{number}", 2.0)
    assert [row.id for row in store.read_now(keys.list_keys)] == ["2", "3", "4"]
    store.write_now(keys.add_key, key("5", "k5"))
    with pytest.raises(Conflict, match="2 keys already"):
        store.write_now(keys.add_key, key("6", "k6"))


def test_uses_are_noted(store: Store) -> None:
    store.write_now(keys.add_key, key("a", "one"))
    store.write_now(keys.note_used, {"a": 7.5, "gone": 8.0})
    assert store.read_now(keys.list_keys)[0].used_at == 7.5


def test_the_log_is_listed_newest_first_by_what_is_asked(store: Store) -> None:
    rows = [
        entry(1.0),
        entry(2.0, action="graph.delete", target="h"),
        entry(3.0, action="key.add", caller="0000000a"),
        entry(4.0, outcome="refused"),
        entry(5.0, action="graphics.put"),
    ]
    store.write_now(keys.add_entries, rows)

    def listed(**asked: object) -> list[float]:
        return [row.at for row in store.read_now(keys.list_entries, **asked)]

    assert listed() == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert listed(limit=2) == [5.0, 4.0]
    newest = store.read_now(keys.list_entries, limit=2)
    assert listed(before=newest[-1].id) == [3.0, 2.0, 1.0]
    assert listed(action="graph") == [4.0, 2.0, 1.0]
    assert listed(action="graph.delete") == [2.0]
    assert listed(action="%") == []
    assert listed(caller="0000000a") == [3.0]
    assert listed(target="h", outcome="done") == [2.0]
    assert listed(outcome="refused") == [4.0]
    assert listed(since=4.0) == [5.0, 4.0]


def test_refusals_never_push_out_what_was_done(store: Store) -> None:
    store.write_now(keys.add_entries, [entry(float(at)) for at in range(5)])
    store.write_now(keys.add_entries, [entry(10.0 + at, "refused") for at in range(50)])
    store.write_now(keys.prune_entries, 1.0, 3, 2)
    rows = store.read_now(keys.list_entries)
    assert [row.at for row in rows] == [59.0, 58.0, 4.0, 3.0, 2.0]
    store.write_now(keys.prune_entries, 3.0, 3, 2)
    assert store.read_now(keys.count_entries) == 4
    store.write_now(keys.prune_entries, 100.0)
    assert store.read_now(keys.count_entries) == 0


def test_runs_are_listed_by_their_caller(store: Store) -> None:
    runs = [
        Run(id=f"{n}", deployment="d", task="t", state="done", created_at=float(n), caller=caller)
        for n, caller in enumerate((None, "a", "b", "a"))
    ]
    store.write_now(queries.save_runs, runs)
    assert [row.id for row in store.read_now(queries.list_runs, None, None, 10, 99.0, "a")] == ["3", "1"]
    assert len(store.read_now(queries.list_runs, None, None, 10, 99.0)) == 4


def test_an_older_database_gets_the_tables_and_keeps_its_runs(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    store = Store.open(f"sqlite:///{path}")
    store.write_now(queries.save_runs, [Run(id="r", deployment="d", task="t", state="done", created_at=1.0)])
    store.close()
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "DROP TABLE waiting; DROP TABLE key; DROP TABLE audit; DROP INDEX ix_run_caller;"
            "ALTER TABLE run DROP COLUMN caller;"
            "UPDATE alembic_version SET version_num = '0003';"
        )
    connection.close()
    store = Store.open(f"sqlite:///{path}")
    assert store.read_now(queries.get_run, "r").caller is None
    assert store.read_now(keys.list_keys) == []
    store.close()
