"""A service that speaks https by itself, and one that a proxy speaks for."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from tests.support.serving import service
from walkgraph.client import AsyncClient, Client, Unreachable
from walkgraph.client.connection.address import trusted
from walkgraph.errors import Refused
from walkgraph.launch import _check_certificate
from walkgraph.settings import Settings


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for `studio.example`, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=studio.example"
    subprocess.run([*words.split(), "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def test_https_and_trusted_proxies(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    cert, key = pair
    more = {"trusted_proxies": '["127.0.0.1"]', "allowed_hosts": '["studio.example"]', "studio": "false"}
    with service(tmp_path / "home", tls_cert=str(cert), tls_key=str(key), **more) as found:
        found.up("--no-deploy")
        url = found.told["url"]
        assert url.startswith("https://127.0.0.1:")
        settings = Settings(home=found.home)
        with Client.local(settings) as client:
            assert client.live()
            assert client.deployments() == []
            for _ in zip(range(1), client.telemetry("none", 0.01), strict=False):
                pass
            token = client.token

        async def awaited() -> bool:
            async with AsyncClient.local(settings) as client:
                return await client.live()

        assert asyncio.run(awaited())
        with pytest.raises(Unreachable, match="certificate"), Client(url, token) as stranger:
            stranger.deployments()
        environment = {**os.environ, "WALKGRAPH_HOME": str(found.home)}
        command = [sys.executable, "-m", "walkgraph.cli.main", "status"]
        assert url in subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        with httpx.Client(base_url=url, verify=trusted(settings) or True, trust_env=False) as http:
            known = {"Authorization": f"Bearer {token}"}
            own = {"Host": "studio.example", **known}
            for origin, status in (("https://studio.example", 200), ("http://studio.example", 403)):
                assert http.get("/v1/limits", headers={**own, "Origin": origin}).status_code == status
            code = http.post("/api/v1/studio/codes", headers=known, json={}).json()["path"]
            assert "Secure" in http.get(code).headers["set-cookie"]
            put = http.put("/api/v1/graphs/mine", headers={**known, "X-Forwarded-For": "203.0.113.7"}, json={})
            assert put.status_code == 200
            assert http.get("/api/v1/audit", headers=known).json()[0]["address"] == "203.0.113.7"
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http") + "/health/live", trust_env=False)
        assert found.down() == 0


def test_only_its_own_certificate_is_trusted(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    settings = Settings(home=home)
    assert trusted(settings) is None
    chain = tmp_path / "chain.pem"
    chain.write_text(pair[0].read_text() * 2)
    settings.address_file.write_text(f'{{"pid": 1, "url": "https://127.0.0.1:1", "certificate": "{chain}"}}')
    context = trusted(settings)
    assert context is not None
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) <= 1
    assert trusted(Settings(home=home, url="https://studio.example")) is None
    chain.write_text("no certificate")
    with pytest.raises(Unreachable, match="can't be read"):
        trusted(settings)


def test_a_certificate_that_can_not_be_shown_is_refused(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    _check_certificate(Settings(home=tmp_path))
    _check_certificate(Settings(home=tmp_path, tls_cert=pair[0], tls_key=pair[1]))
    for cert, key in ((pair[0], pair[0]), (pair[0], tmp_path / "none.pem")):
        with pytest.raises(Refused, match="must be a PEM certificate and its key"):
            _check_certificate(Settings(home=tmp_path, tls_cert=cert, tls_key=key))
    with pytest.raises(ValidationError, match="needed together"):
        Settings(home=tmp_path, tls_cert=pair[0])


def test_proxies_are_addresses(tmp_path: Path) -> None:
    assert Settings(home=tmp_path, trusted_proxies=("10.0.0.0/8", "::1")).trusted_proxies == ("10.0.0.0/8", "::1")
    for wrong in ("*", "proxy.example", "10.0.0.1/8", ""):
        with pytest.raises(ValidationError, match="neither an address nor a network"):
            Settings(home=tmp_path, trusted_proxies=(wrong,))
