"""https: the certificate must be the name's, though the connection goes to an address."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.outside import called, names, outside
from tests.support.recording import Recording
from walkgraph.errors import WalkgraphError
from walkgraph.service.outward.exchange import Outside
from walkgraph.wire import messages as m


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for `inside.example`, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=inside.example"
    made = [*words.split(), "-addext", "subjectAltName=DNS:inside.example", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)
    return cert, key


@pytest.fixture
async def server(pair: tuple[Path, Path]) -> AsyncIterator[Recording]:
    found = Recording("127.0.0.1", 0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    listening = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context)
    found.port = listening.sockets[0].getsockname()[1]
    async with listening:
        yield found
        listening.close()


def reached(server: Recording) -> Outside:
    hosts = [f"https://{name}:{server.port}" for name in ("inside.example", "other.example", "127.0.0.1")]
    at = ("127.0.0.1",)
    return outside(*hosts, resolve=names(inside_example=at, other_example=at))


async def test_the_name_of_the_url_is_what_the_certificate_must_have(
    server: Recording, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(pair[0]))
    found = await called("http.request", reached(server), {"url": f"https://inside.example:{server.port}/x"})
    assert found["text"] == m.Small(value="hit")
    assert server.asked[0].headers["host"] == f"inside.example:{server.port}"
    for other in ("other.example", "127.0.0.1"):
        with pytest.raises(WalkgraphError, match="certificate"):
            await called("http.request", reached(server), {"url": f"https://{other}:{server.port}/x"})
    assert len(server.asked) == 1


async def test_a_certificate_that_nobody_vouches_for_is_refused(server: Recording) -> None:
    with pytest.raises(WalkgraphError, match="certificate"):
        await called("http.request", reached(server), {"url": f"https://inside.example:{server.port}/x"})
    assert server.asked == []
