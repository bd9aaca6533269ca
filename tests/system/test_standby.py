"""Services that share a PostgreSQL database: one serves, the others pass on what they are sent, and one takes over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from tests.support.databases import PostgreSQL
from tests.support.serving import Service, service
from walkgraph.client import Client, RunError
from walkgraph.service.http.limits import BODY_BYTES

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


@contextmanager
def balancer(pair: Pair, repository: Path) -> Iterator[str]:
    """The address of one with the compose file's configuration."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        "SITE": f":{port}",
        "SERVICES": " ".join(urlsplit(one).netloc for one in pair.addresses()),
    }
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", repository / "docker" / "Caddyfile"]
    with (
        ThreadPoolExecutor(1) as pool,
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stderr is not None
            assert any("serving initial configuration" in line for line in process.stderr), "it has ended"
            pool.submit(process.stderr.read)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("caddy") is None, reason="`caddy` is not installed")
def test_clients_of_a_balancer_go_on_where_a_service_is_killed(pair: Pair, repository: Path) -> None:
    pair.up(pair.first)
    pair.up(pair.second)
    with balancer(pair, repository) as address, Client(address, TOKEN) as client:
        client.wait_ready("shapes")
        expected = drawn(client)
        events = [event.name for event in client.stream("shapes", "text_to_image", ASKED)]
        assert (events[0], events[-1]) == ("accepted", "done")
        with pytest.raises(RunError, match="keeps no session"), client.session("shapes", "text_to_image"):
            pass
        asked = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        answer = httpx.post(
            f"{address}/v1/tasks/shapes/text_to_image", content=b" " * BODY_BYTES, headers=asked, timeout=60
        )
        assert answer.json()["code"] == "invalid_input"
        pair.first.signal(signal.SIGKILL)
        pair.first.ended()
        client.wait_ready("shapes")
        assert drawn(client) == expected
    assert pair.second.down() == 0
