"""Settings: refused when unsafe, private files, one token a home."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from walkgraph.errors import Refused
from walkgraph.settings import (
    Settings,
    actor_environment,
    ensure_token,
    is_loopback,
    openmp_threads,
    prepare_home,
    read_token,
    use_interface,
    write_private,
)


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HOST", "PORT", "TOKEN", "STUDIO"):
        monkeypatch.delenv(f"WALKGRAPH_{name}", raising=False)
    monkeypatch.setenv("WALKGRAPH_HOME", str(tmp_path / "home"))


def test_the_environment_is_read_once_and_frozen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WALKGRAPH_PORT", "9000")
    settings = Settings()
    assert settings.port == 9000
    assert settings.database == f"sqlite:///{tmp_path / 'home' / 'walkgraph.db'}"
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Settings(prot=1)  # type: ignore[call-arg]


@pytest.mark.safety("S11")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "127.0.0.1.evil.example"])
def test_a_host_others_can_reach_needs_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="WALKGRAPH_TOKEN"):
        Settings(host=host)
    monkeypatch.setenv("WALKGRAPH_TOKEN", "short")
    with pytest.raises(ValidationError, match="at least 16"):
        Settings(host=host)
    monkeypatch.setenv("WALKGRAPH_TOKEN", "a-secret-of-some-length")
    assert Settings(host=host).host == host


def test_loopback_is_recognised() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9")))
    assert not any(map(is_loopback, ("0.0.0.0", "localhost.evil", "", "10.0.0.1")))


@pytest.mark.safety("S16")
def test_home_and_token_are_private_and_the_token_stays(tmp_path: Path) -> None:
    settings = Settings()
    assert read_token(settings) is None
    token = ensure_token(settings)
    assert len(token) >= 40
    assert ensure_token(settings) == read_token(settings) == token
    assert stat.S_IMODE(settings.home.stat().st_mode) == 0o700
    assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600
    settings.token_file.chmod(0o644)
    ensure_token(settings)
    assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600


def test_a_chosen_token_is_not_written_down() -> None:
    settings = Settings(token="a-secret-of-some-length")
    assert ensure_token(settings) == "a-secret-of-some-length"
    assert not settings.token_file.exists()
    assert "a-secret" not in repr(settings)


def test_a_home_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="not a link"):
        prepare_home(Settings())


@pytest.mark.safety("S16")
def test_private_files_are_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, "one")
    write_private(path, "two")
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret"]


def test_secrets_are_those_of_urls_and_headers(tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        database_url="postgresql://wg:data%2Fbase-password@host/db",
        otlp_endpoint="https://user:endpoint-password@collector/x",
        otlp_headers=SecretStr("authorization=Bearer%20header-secret,x-scope-orgid=1"),
    )
    found = settings.secrets()
    assert {"data/base-password", "endpoint-password", "Bearer header-secret"} <= {*found}
    assert "1" not in found
    assert Settings(home=tmp_path).secrets() == ()


def test_servers_that_can_be_called_are_read_at_the_start(tmp_path: Path) -> None:
    found = Settings(home=tmp_path, call_hosts=("api.acme.example", "*.b.example"))
    assert [str(server) for server in found.callable_servers()] == [
        "https://api.acme.example",
        "https://*.b.example",
    ]
    assert Settings(home=tmp_path).callable_servers() == ()
    with pytest.raises(ValidationError, match="WALKGRAPH_CALL_HOSTS"):
        Settings(home=tmp_path, call_hosts=("https://a.example/path",))


@pytest.mark.parametrize(
    ("value", "threads"), [(None, None), ("", None), ("3", 3), (" 4,2", 4), ("0", None), ("-1", None), ("many", None)]
)
def test_the_limit_of_threads_is_that_of_openmp(
    value: str | None, threads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if value is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert openmp_threads() == threads


@pytest.mark.parametrize(("named", "used"), [(None, "eth7"), ("lo", "eth7"), ("mlx5_0:1", "mlx5_0:1")])
def test_nixl_uses_the_hosts_interface_unless_the_user_names_one(
    monkeypatch: pytest.MonkeyPatch, named: str | None, used: str
) -> None:
    monkeypatch.setenv("UCX_NET_DEVICES", named or "")
    if named is None:
        monkeypatch.delenv("UCX_NET_DEVICES")
    use_interface("eth7")
    assert os.environ["UCX_NET_DEVICES"] == used


@pytest.mark.parametrize(
    ("threads", "gpus", "kept"),
    [("1", "", {}), ("4", "2,3", {"OMP_NUM_THREADS": "4", "CUDA_VISIBLE_DEVICES": "2,3"})],
)
def test_an_actors_worker_gets_what_the_user_chose_and_not_what_ray_did(
    monkeypatch: pytest.MonkeyPatch, threads: str, gpus: str, kept: dict[str, str]
) -> None:
    both = {"OMP_NUM_THREADS": threads, "CUDA_VISIBLE_DEVICES": gpus}
    for name, value in both.items():
        monkeypatch.setenv(name, value)
    assert {name: value for name, value in actor_environment().items() if name in both} == kept
