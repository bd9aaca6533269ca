"""The store keeps acknowledged writes, whichever process dies; migrations can run again."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import QueuePool
from sqlmodel import Session, SQLModel

from tests.safety.plugin import Figure, Scale
from walkgraph.errors import Conflict, NotFound
from walkgraph.store import queries, session
from walkgraph.store.queries import PreconditionFailed
from walkgraph.store.session import Store, StoreFull
from walkgraph.store.tables import Deployment, Run


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("store") / "empty.db"
    Store.open(f"sqlite:///{path}").close()
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, empty: bytes) -> Path:
    found = tmp_path / "w.db"
    found.write_bytes(empty)
    return found


@pytest.fixture
def store(path: Path):
    found = Store.open(f"sqlite:///{path}")
    yield found
    found.close()


def run(id_: str, created_at: float, state: str = "running") -> Run:
    return Run(id=id_, deployment="d", task="t", state=state, created_at=created_at)


def test_sqlite_is_set_up_for_many_readers_and_no_loss(store: Store) -> None:
    def pragma(opened: Session, name: str) -> object:
        return opened.connection().exec_driver_sql(f"PRAGMA {name}").scalar()

    assert store.read_now(pragma, "journal_mode") == "wal"
    assert store.read_now(pragma, "synchronous") == 2
    assert store.read_now(pragma, "busy_timeout") == 5000
    assert store.read_now(pragma, "cache_size") == -512
    assert store.read_now(pragma, "foreign_keys") == 1


def test_a_database_in_memory_is_one_for_all_threads() -> None:
    """Its connection is closed with the store, whichever threads had it."""
    store = Store.open("sqlite://")
    pool = store._reads.pool
    with ThreadPoolExecutor(1) as threads:
        threads.submit(store.write_now, queries.put_document, "graph", "g", "{}", None).result()
    assert store.read_now(queries.get_document, "graph", "g").text == "{}"
    assert isinstance(pool, QueuePool)
    assert (pool.checkedin(), pool.checkedout()) == (1, 0)
    store.close()
    assert pool.checkedin() == 0


def test_migrations_make_the_tables_that_the_code_has(store: Store) -> None:
    with store._reads.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []


def test_the_store_knows_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(session._MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [session.NEWEST]


def test_opening_again_changes_nothing(path: Path) -> None:
    store = Store.open(f"sqlite:///{path}")
    store.write_now(queries.put_document, "graph", "g", "{}", None)
    store.close()
    store = Store.open(f"sqlite:///{path}")
    assert store.read_now(queries.get_document, "graph", "g").text == "{}"
    store.close()


@pytest.mark.safety("R14")
def test_a_migration_that_fails_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    made = op.create_table
    calls: list[str] = []

    def breaking(name: str, *columns: object, **options: object) -> object:
        calls.append(name)
        if name == "run":
            raise KeyboardInterrupt
        return made(name, *columns, **options)

    path = tmp_path / "half.db"
    with monkeypatch.context() as patched:
        patched.setattr(op, "create_table", breaking)
        with pytest.raises(KeyboardInterrupt):
            Store.open(f"sqlite:///{path}")
    assert calls == ["document", "version", "deployment", "run"]
    with sqlite3.connect(path) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    connection.close()
    assert ("document",) not in tables
    store = Store.open(f"sqlite:///{path}")
    assert store.read_now(queries.is_new)
    store.close()


def test_the_database_is_private(tmp_path: Path) -> None:
    Store.open(f"sqlite:///{tmp_path / 'p.db'}").close()
    assert stat.S_IMODE((tmp_path / "p.db").stat().st_mode) == 0o600


def test_etags_guard_drafts(store: Store) -> None:
    first = store.write_now(queries.put_document, "graph", "g", '{"a":1}', None)
    assert first.etag == queries.etag_of('{"a":1}')
    for wrong in (None, "0" * 32):
        with pytest.raises(PreconditionFailed):
            store.write_now(queries.put_document, "graph", "g", "{}", wrong)
    assert store.write_now(queries.put_document, "graph", "g", "{}", first.etag).text == "{}"
    assert store.write_now(queries.put_document, "graph", "g", "[]", "*").text == "[]"
    with pytest.raises(PreconditionFailed):
        store.write_now(queries.put_document, "graph", "new", "{}", first.etag)
    with pytest.raises(NotFound):
        store.read_now(queries.get_document, "placement", "g")


def test_a_failed_write_leaves_nothing(store: Store) -> None:
    def half(opened: Session) -> None:
        queries.put_document(opened, "graph", "half", "{}", None)
        raise Conflict("stop")

    with pytest.raises(Conflict):
        store.write_now(half)
    with pytest.raises(NotFound):
        store.read_now(queries.get_document, "graph", "half")


def test_bundled_documents_follow_the_package_and_spare_the_users(store: Store) -> None:
    store.write_now(queries.put_document, "graph", "mine", "{}", None)
    store.write_now(queries.seed_bundled, "graph", {"a": "1", "b": "2", "mine": "3"})
    store.write_now(queries.seed_bundled, "graph", {"b": "22", "mine": "3"})
    found = {row.name: (row.text, row.bundled) for row in store.read_now(queries.list_documents, "graph")}
    assert found == {"b": ("22", True), "mine": ("{}", False)}
    with pytest.raises(Conflict):
        store.write_now(queries.delete_document, "graph", "b", None)
    store.write_now(queries.put_document, "graph", "b", "[]", "*")
    store.write_now(queries.seed_bundled, "graph", {"b": "222"})
    assert store.read_now(queries.get_document, "graph", "b").text == "[]"
    assert [(row.text, row.note) for row in store.read_now(queries.list_versions, "graph", "b")] == [
        ("22", queries.ORIGINAL)
    ]


def test_a_bundled_document_has_its_tags_until_a_user_changes_them(store: Store) -> None:
    tags = {"a": ("example",)}
    store.write_now(queries.seed_bundled, "graph", {"a": "1", "b": "2"}, tags)
    assert {row.name: row.tags for row in store.read_now(queries.list_documents, "graph")} == {
        "a": '["example"]',
        "b": "[]",
    }
    store.write_now(queries.set_tags, "graph", "a", ["mine"])
    store.write_now(queries.seed_bundled, "graph", {"a": "11", "b": "2"}, tags)
    assert store.read_now(queries.get_document, "graph", "a").tags == '["mine"]'


def test_versions_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "KEPT_VERSIONS", 3)
    for number in range(5):
        store.write_now(queries.add_version, "graph", "g", str(number), "")
    assert [row.text for row in store.read_now(queries.list_versions, "graph", "g")] == ["4", "3", "2"]


def test_runs_are_listed_newest_first_and_pruned(store: Store) -> None:
    store.write_now(queries.save_runs, [run(f"r{i}", float(i)) for i in range(6)])
    store.write_now(queries.save_runs, [run("r5", 5.0, "done")])
    assert [r.id for r in store.read_now(queries.list_runs, "d", None, 2, 99.0)] == ["r5", "r4"]
    assert [r.id for r in store.read_now(queries.list_runs, None, "done", 9, 99.0)] == ["r5"]
    assert [r.id for r in store.read_now(queries.list_runs, None, None, 9, 2.0)] == ["r1", "r0"]
    assert store.write_now(queries.end_lost_runs, '{"code":"shutting_down"}') == 5
    assert store.read_now(queries.get_run, "r0").state == "failed"
    store.write_now(queries.prune_runs, 2)
    assert [r.id for r in store.read_now(queries.list_runs, None, None, 9, 99.0)] == ["r5", "r4"]


def test_deployments_are_wanted_once(store: Store) -> None:
    def wanted() -> Deployment:
        texts = {"graph_text": "{}", "placement_text": "{}"}
        return Deployment(id="d", graph_name="g", placement_name="p", created_at=1.0, **texts)

    store.write_now(queries.add_deployment, wanted())
    with pytest.raises(Conflict):
        store.write_now(queries.add_deployment, wanted())
    store.write_now(queries.delete_deployment, "d")
    with pytest.raises(NotFound):
        store.write_now(queries.delete_deployment, "d")


@pytest.mark.safety("R14")
def test_writers_wait_for_each_other(store: Store, scale: Scale, figure: Figure) -> None:
    writers, writes = scale((4, 25), (8, 1000))

    def write(thread: int) -> None:
        for number in range(writes):
            store.write_now(queries.put_document, "graph", f"g{thread}", str(number), "*" if number else None)

    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, range(writers)))
    rows = store.read_now(queries.list_documents, "graph")
    assert [row.text for row in rows] == [str(writes - 1)] * writers
    figure(f"writes of {writers} writers, none refused", writers * writes, at_least=8000)


@pytest.mark.safety("R14")
def test_a_full_disk_is_a_typed_error_and_passes(store: Store) -> None:
    def bound(opened: Session, pages: int) -> None:
        opened.connection().exec_driver_sql(f"PRAGMA max_page_count={pages}")

    def fill(opened: Session, pages: int) -> None:
        bound(opened, pages)
        queries.put_document(opened, "graph", "big", "x" * 1_000_000, None)

    with pytest.raises(StoreFull, match="too full"):
        store.write_now(fill, 30)
    store.write_now(fill, 100_000)
    assert len(store.read_now(queries.get_document, "graph", "big").text) == 1_000_000


async def test_reading_and_writing_leave_the_loop_free(store: Store) -> None:
    main = threading.get_ident()

    def where(_opened: Session) -> int:
        return threading.get_ident()

    assert await store.read(where) != main
    assert await store.write(where) != main


def test_text_is_stored_as_given(store: Store) -> None:
    text = json.dumps({"z": 1, "a": "\x00é\U0001f600"}, ensure_ascii=False)
    store.write_now(queries.put_document, "graph", "g", text, None)
    assert store.read_now(queries.get_document, "graph", "g").text == text


def test_the_module_says_where_migrations_are() -> None:
    assert (session._MIGRATIONS / "env.py").is_file()


def test_documents_of_the_first_tables_get_no_tags(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    old = Store.open(url)
    old.write_now(queries.put_document, "graph", "a", "{}", None)
    with old._writes.begin() as connection:
        for table in ("trace", "key", "audit", "waiting"):
            connection.exec_driver_sql(f"DROP TABLE {table}")
        connection.exec_driver_sql("DROP INDEX ix_run_caller")
        connection.exec_driver_sql("ALTER TABLE run DROP COLUMN caller")
        connection.exec_driver_sql("ALTER TABLE document DROP COLUMN tags")
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0001'")
    old.close()
    new = Store.open(url)
    assert new.read_now(queries.get_document, "graph", "a").tags == "[]"
    new.close()
