"""Services that share a PostgreSQL database: one serves, the others pass on what they are sent, and one takes over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.support.databases import PostgreSQL
from tests.support.serving import Service, service
from walkgraph.client import Client, RunError

TOKEN = "of-all-services-here"
PORT = 8421
ASKED = {"inputs": {"prompt": "a red circle"}, "params": {"steps": 2, "seed": 7}, "outputs": ["image"]}
DROP_OWNER = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE locktype = 'advisory' AND granted AND application_name = %s
"""


@dataclass
class Pair:
    database: str
    first: Service
    second: Service

    def addresses(self) -> tuple[str, str]:
        return self.first.environment["WALKGRAPH_PEER_URL"], self.second.environment["WALKGRAPH_PEER_URL"]

    def up(self, one: Service, *words: str) -> None:
        host = one.environment["WALKGRAPH_PEER_URL"].removeprefix("http://").partition(":")[0]
        one.up("--host", host, "--port", str(PORT), *words)

    @staticmethod
    def ends(one: Service) -> bool:
        """True once its process has ended; waits for a moment."""
        assert one.process is not None
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(0.5)
        return one.process.poll() is not None


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Each on an address of its own, which no other process of the tests has."""
    number = os.getpid()
    hosts = [f"127.{side}.{number >> 8 & 255}.{number & 255}" for side in (101, 102)]
    with ExitStack() as stack:
        # Not in pytest's own folders: started by root, the server is another user's, and its socket's path is short.
        server = PostgreSQL(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pg"))))
        server.start()
        stack.callback(server.kill)
        url = server.make()
        shared = {
            "database_url": url, "token": TOKEN, "studio": "false",
            "allowed_hosts": json.dumps(hosts),
        }  # fmt: skip
        found = [
            stack.enter_context(service(tmp_path / name, **shared, peer_url=f"http://{host}:{PORT}"))
            for name, host in zip("ab", hosts, strict=True)
        ]
        yield Pair(url, *found)


def drawn(client: Client) -> object:
    return client.run("shapes", "text_to_image", ASKED)["outputs"]


def test_another_service_takes_over_where_one_is_killed(pair: Pair) -> None:
    first, second = pair.addresses()
    pair.up(pair.first)
    pair.up(pair.second)
    assert (pair.first.told["behind"], pair.second.told["behind"]) == (None, first)
    with Client(first, TOKEN) as here, Client(second, TOKEN) as there:
        there.wait_ready("shapes")
        expected = drawn(here)
        assert drawn(there) == expected
        events = [event.name for event in there.stream("shapes", "text_to_image", ASKED)]
        assert (events[0], events[-1]) == ("accepted", "done")
        # Sockets are passed on too.
        with pytest.raises(RunError, match="keeps no session"), there.session("shapes", "text_to_image"):
            pass
    pair.first.signal(signal.SIGKILL)
    pair.first.ended()
    while "takes over" not in pair.second.log:
        assert not pair.ends(pair.second)
    with Client(second, TOKEN) as there:
        assert there.wait_ready("shapes")["state"] == "ready"
        assert drawn(there) == expected
    # The first one comes back behind the second.
    pair.up(pair.first)
    assert pair.first.told["behind"] == second
    assert pair.first.down() == 0
    assert pair.second.down() == 0


def test_a_service_that_lost_its_database_to_another_leaves(pair: Pair) -> None:
    first, second = pair.addresses()
    pair.up(pair.first, "--no-deploy")
    pair.up(pair.second, "--no-deploy")
    with psycopg.connect(pair.database, autocommit=True) as connection:
        # It may have it again before the other one asks.
        while not pair.ends(pair.first):
            connection.execute(DROP_OWNER, (f"walkgraph {first}",))
    assert pair.first.ended() == 1
    assert "another service has taken over" in pair.first.log
    with Client(second, TOKEN) as there:
        assert there.deployments() == []
