"""Secrets by name, in files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from walkgraph.errors import NotFound, Refused
from walkgraph.servers import parse_url
from walkgraph.service.outward.vault import MOST_BYTES, Vault

API = parse_url("https://api.acme.example/v1")
VALUE = "sk-0123456789"


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "secrets")


def test_a_secret_is_two_private_files(vault: Vault, tmp_path: Path) -> None:
    made = vault.set("openai", VALUE, ["api.acme.example"])
    assert (made.name, [str(server) for server in made.servers]) == ("openai", ["https://api.acme.example"])
    folder = tmp_path / "secrets"
    assert (folder / "openai").read_text() == f"{VALUE}\n"
    assert (folder / "openai.hosts").read_text() == "https://api.acme.example\n"
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert vault.value_for("openai", API) == VALUE
    assert vault.listed() == [made]


def test_a_new_value_replaces_the_old_one(vault: Vault) -> None:
    vault.set("a", VALUE, ["api.acme.example"])
    vault.set("a", "another value", ["*.acme.example"])
    assert vault.value_for("a", API) == "another value"
    vault.set("a", VALUE, ["other.example"])
    with pytest.raises(Refused, match="may not be sent to"):
        vault.value_for("a", API)


def test_a_secret_without_servers_is_sent_nowhere(vault: Vault, tmp_path: Path) -> None:
    vault.set("a", VALUE, ["api.acme.example"])
    (tmp_path / "secrets" / "a.hosts").unlink()
    with pytest.raises(Refused, match="may not be sent"):
        vault.value_for("a", API)


def test_a_removed_secret_is_gone(vault: Vault, tmp_path: Path) -> None:
    assert vault.listed() == []
    vault.set("a", VALUE, ["api.acme.example"])
    vault.remove("a")
    assert list((tmp_path / "secrets").iterdir()) == []
    with pytest.raises(NotFound):
        vault.remove("a")
    with pytest.raises(NotFound, match="walkgraph secrets set a"):
        vault.value_for("a", API)


@pytest.mark.parametrize("name", ["", "A", "..", "a/b", "a.hosts", "-a", "a" * 65, "a\n", "ä", "/etc/passwd"])
def test_a_name_is_no_path(vault: Vault, name: str) -> None:
    for use in (lambda: vault.set(name, VALUE, ["x.example"]), lambda: vault.value_for(name, API)):
        with pytest.raises(Refused, match="the name of a secret"):
            use()


@pytest.mark.parametrize(
    "value", ["", "short", "two\nlines!", " spaced ", "ümlaut-long", "nul\0-long-enough", "x" * 20_000]
)
def test_a_value_fits_a_header(vault: Vault, value: str) -> None:
    with pytest.raises(Refused) as refused:
        vault.set("a", value, ["api.acme.example"])
    assert not value or value not in str(refused.value)
    assert vault.listed() == []


def test_who_may_get_it_must_be_named(vault: Vault) -> None:
    with pytest.raises(Refused, match="at least one server"):
        vault.set("a", VALUE, [])
    with pytest.raises(Refused, match="is no server"):
        vault.set("a", VALUE, ["not a server"])
    assert vault.listed() == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused(vault: Vault, tmp_path: Path, mode: int) -> None:
    vault.set("a", VALUE, ["api.acme.example"])
    (tmp_path / "secrets" / "a").chmod(mode)
    with pytest.raises(Refused, match="0600"):
        vault.value_for("a", API)


def test_a_mounted_secret_is_read(vault: Vault, tmp_path: Path) -> None:
    """As orchestrators mount them: links into a folder, without a line's end."""
    real, folder = tmp_path / "data", tmp_path / "secrets"
    real.mkdir()
    folder.mkdir()
    for name, text in (("a", VALUE), ("a.hosts", "\napi.acme.example\r\n")):
        (real / name).write_text(text)
        (real / name).chmod(0o400)
        (folder / name).symlink_to(real / name)
    assert vault.value_for("a", API) == VALUE


def test_what_is_no_text_is_refused(vault: Vault, tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    os.mkfifo(folder / "pipe", 0o600)
    (folder / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    (folder / "bytes").write_bytes(b"\xff" * 20)
    (folder / "folder").mkdir(0o700)
    for name in ("pipe", "large", "bytes", "folder"):
        if (folder / name).is_file():
            (folder / name).chmod(0o600)
        with pytest.raises(Refused):
            vault.value_for(name, API)
