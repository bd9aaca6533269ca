"""The connections of the blocking client, to a server that says exactly what the test wants."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

import httpx
import pytest

from walkgraph.client.connection.pooling import PIECE_BYTES, PooledTransport

SECONDS = 60.0
NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Answer = Callable[[socket.socket], None]


class Server:
    """Answers its requests one by one, each connection until an answer closes it."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.closed = threading.Event()
        """Set once it has closed a connection."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while self._answers:
            connection, _ = self._listener.accept()
            self.connections += 1
            with connection, connection.makefile("rb") as asked:
                while self._answers and (head := self._head(asked.readline)):
                    self.heads.append(head)
                    length = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
                    self.bodies.append(asked.read(int(length[0].split(b":")[1]) if length else 0))
                    try:
                        self._answers.pop(0)(connection)
                    except ConnectionError:
                        self.closed.set()
                        break

    def _head(self, line: Callable[[], bytes]) -> bytes:
        head = b""
        while (found := line()) not in (b"\r\n", b""):
            head += found
        return head


def says(content: bytes) -> Answer:
    return lambda connection: connection.sendall(content)


def breaks_off(content: bytes) -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_RDWR)
        raise ConnectionError

    return answer


@contextmanager
def client(*answers: Answer) -> Generator[tuple[httpx.Client, Server]]:
    server = Server(*answers)
    with httpx.Client(base_url=server.url, transport=PooledTransport(server.url, NOBODY), timeout=SECONDS) as found:
        yield found, server
    server.close()


def test_a_connection_is_used_again_and_opened_again_once_the_server_has_closed_it() -> None:
    with client(says(OK), breaks_off(OK), says(OK)) as (found, server):
        assert [found.get("/a").text, found.post("/b", content=b"body").text] == ["ok", "ok"]
        assert server.connections == 1
        assert server.closed.wait(SECONDS)
        assert found.get("/c?d=e%20f").text == "ok"
        assert server.connections == 2
        assert [head.split(b"\r\n")[0] for head in server.heads] == [
            b"GET /a HTTP/1.1",
            b"POST /b HTTP/1.1",
            b"GET /c?d=e%20f HTTP/1.1",
        ]
        assert server.bodies == [b"", b"body", b""]
        assert not any(b"transfer-encoding" in head.lower() for head in server.heads)


def test_large_content_comes_in_large_pieces_with_the_same_bytes() -> None:
    content = bytes(range(256)) * (4 * PIECE_BYTES // 256)
    pieces = (content[: PIECE_BYTES + 3], content[PIECE_BYTES + 3 :])
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (*pieces, b""))
    said = says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)
    with client(said) as (found, _), found.stream("GET", "/") as answer:
        came = list(answer.iter_bytes())
    assert b"".join(came) == content
    assert max(map(len, came)) == PIECE_BYTES
    assert len(came) <= len(content) // PIECE_BYTES + len(pieces)


def test_events_come_before_the_answer_has_ended() -> None:
    read = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\ndata\n\n\r\n")
        assert read.wait(SECONDS)
        connection.sendall(b"5\r\nmore\n\r\n0\r\n\r\n")

    with client(answer) as (found, _), found.stream("GET", "/") as answered:
        lines = answered.iter_lines()
        assert next(lines) == "data"
        read.set()
        assert list(lines) == ["", "more"]


def test_an_answer_that_is_left_early_ends_its_connection() -> None:
    endless = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nsome"
    with client(says(endless), says(OK)) as (found, server):
        with found.stream("GET", "/"):
            pass
        assert found.get("/").text == "ok"
        assert server.connections == 2


def test_failures_are_those_of_httpx() -> None:
    half = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok"
    with client(breaks_off(half), breaks_off(b""), breaks_off(b"no http\r\n\r\n")) as (found, _):
        for _ in range(3):
            with pytest.raises(httpx.RemoteProtocolError):
                found.get("/")
    free = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with httpx.Client(base_url=url, transport=PooledTransport(url, NOBODY), timeout=0.05) as found:
        with pytest.raises(httpx.ReadTimeout):
            found.get("/")
        free.close()
        with pytest.raises(httpx.ConnectError):
            found.get("/")
