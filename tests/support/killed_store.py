"""Processes that are killed at every statement of a database: while it is made, migrated, written.

`python -m tests.support.killed_store 7 URL ...`: before each 7th statement, each time in a database of its own; for
SQLite one URL is enough, whose `{}` is filled. A line of JSON tells the statement, and what was found afterwards.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Engine, event

from tests.support.forked import fork
from walkgraph.errors import Conflict
from walkgraph.store import queries
from walkgraph.store.session import Store
from walkgraph.store.tables import Deployment

NAMES = ("one", "two", "three")


def write(store: Store, acknowledge: Callable[[str], None]) -> None:
    """Drafts, changed, and what is deployed."""
    for name in NAMES:
        etag = store.write_now(queries.put_document, "graph", name, "{}", None).etag
        acknowledge(name)
        store.write_now(queries.put_document, "graph", name, f'"{name}"', etag)
        acknowledge(f"{name}+")
        store.write_now(queries.add_deployment, deployment(name))
        acknowledge(f"{name}!")


def deployment(name: str) -> Deployment:
    made = {"graph_name": name, "graph_text": f'"{name}"', "placement_name": "p", "placement_text": "{}"}
    return Deployment(id=name, created_at=1.0, **made)


def killed(url: str, at: int) -> list[str] | None:
    """The acknowledged writes of a process that was killed before its statement `at`; None if it had ended."""
    reader, writer = os.pipe()

    def work() -> None:
        seen = 0

        def count(*_: object) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(Engine, "before_cursor_execute", count)
        event.listen(Engine, "commit", count)
        store = Store.open(url)
        write(store, lambda what: void(os.write(writer, f"{what}\n".encode())))
        store.close()

    pid = fork(work, keep=writer)
    os.close(writer)
    with os.fdopen(reader) as told:
        acknowledged = told.read().split()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return acknowledged
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError("the writer failed by itself")
    return None


def void(_: object) -> None:
    return None


def found(url: str) -> Sequence[str]:
    """The contents after the store is opened again: names, with `+` if changed and `!` if deployed."""
    store = opened(url)
    rows = {row.name: row.text for row in store.read_now(queries.list_documents, "graph")}
    deployed = {row.id: row.graph_text for row in store.read_now(queries.list_deployments)}
    store.close()
    return [
        *rows,
        *(f"{name}+" for name, text in rows.items() if text == f'"{name}"'),
        *(f"{name}!" for name, text in deployed.items() if text == f'"{name}"'),
    ]


def opened(url: str) -> Store:
    """A server learns a moment later that its client was killed."""
    end = time.monotonic() + 30
    while True:
        try:
            return Store.open(url)
        except Conflict:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def main(every: int, urls: Sequence[str]) -> None:
    at, taken = 1, 0
    while taken < len(urls) or "{}" in urls[0]:
        url = urls[0].format(at) if "{}" in urls[0] else urls[taken]
        acknowledged = killed(url, at)
        if acknowledged is None:
            break
        # In a process of its own, so that none is forked from one with connections.
        reader, writer = os.pipe()
        pid = fork(lambda url=url, writer=writer: void(os.write(writer, json.dumps(found(url)).encode())), keep=writer)
        os.close(writer)
        with os.fdopen(reader) as told:
            text = told.read()
        os.waitpid(pid, 0)
        print(json.dumps({"at": at, "acknowledged": acknowledged, "found": json.loads(text or "null")}), flush=True)
        at, taken = at + every, taken + 1
    print(json.dumps({"statements": at}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
