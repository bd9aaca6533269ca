"""The exact syntax of the `Host` header."""

from __future__ import annotations

import pytest

from walkgraph.service.access import hosts

GOOD = (
    ("localhost", "localhost", None),
    ("LocalHost", "localhost", None),
    ("localhost:8421", "localhost", 8421),
    ("localhost:1", "localhost", 1),
    ("localhost:65535", "localhost", 65535),
    ("127.0.0.1", "127.0.0.1", None),
    ("127.0.0.1:80", "127.0.0.1", 80),
    ("[::1]", "[::1]", None),
    ("[::1]:8421", "[::1]", 8421),
    ("[::]", "[::]", None),
    ("[FD00::1]:443", "[fd00::1]", 443),
    ("[0:0:0:0:0:0:0:1]", "[0:0:0:0:0:0:0:1]", None),
    ("[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]", 80),
    ("studio.example", "studio.example", None),
    ("studio.example.:443", "studio.example.", 443),
    ("my_host-2:443", "my_host-2", 443),
    ("xn--bcher-kva.example", "xn--bcher-kva.example", None),
)
BAD = (
    "", " ", ":", ":80", "[", "]", "[]", "[]:80", "[::1", "::1]", "::1", "[::1]]", "[[::1]", "[[::1]]", "[::1]]:80",
    "[::1]x", "[::1]80", "[::1]:", "[::1]:x", "[::1]:8421x", "x[::1]", "[::1].example", "[::1%lo]", "[::1%25lo]",
    "[1::2::3]", "[:::]", "[12345::]", "[127.0.0.1]", "[localhost]", "[v1.x]", "localhost:", "localhost:0",
    "localhost:00", "localhost:080", "localhost:65536", "localhost:99999", "localhost:123456", "localhost:-1",
    "localhost:+80", "localhost: 80", "localhost:8 0", "localhost:80:80", "localhost:0x50", "localhost:\u0661",
    "localhost:\u00b2", "-localhost", ".localhost", "local host", "localhost\t", "localhost,evil", "user@localhost",
    "localhost/", "localhost?x", "localhost#x", "localhost\\x", "localhost%00", "localhost\x00", "\uff4cocalhost",
    "localho\u017ft", "*", "a" * 254,
)  # fmt: skip


@pytest.mark.parametrize(("value", "name", "port"), GOOD)
def test_a_host_is_a_name_or_an_address_and_maybe_a_port(value: str, name: str, port: int | None) -> None:
    assert hosts.read(value) == (name, port)


@pytest.mark.parametrize("value", BAD)
def test_nothing_else_is(value: str) -> None:
    assert hosts.read(value) is None


def test_configured_names_are_known_as_they_are_read() -> None:
    known = hosts.known(("Studio.Example", "fd00::1", "[fd00::2]", "0.0.0.0"))
    assert known == {"127.0.0.1", "localhost", "[::1]", "studio.example", "[fd00::1]", "[fd00::2]", "0.0.0.0"}
    assert all((found := hosts.read(name)) is not None and found[0] == name for name in known)
