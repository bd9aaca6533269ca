"""URLs and lists of servers, read by one strict grammar."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkgraph.errors import Refused
from walkgraph.servers import is_public, parse_server, parse_servers, parse_url

PRIVATE = "10.0.0.5"
URLS = {
    "https://api.example/v1/x?a=b&c=%20": "https://api.example/v1/x?a=b&c=%20",
    "HTTPS://API.Example": "https://api.example/",
    "https://x-1.example:8443/": "https://x-1.example:8443/",
    "http://a.example:80?q": "http://a.example/?q",
    f"http://{PRIVATE}:8000/a": f"http://{PRIVATE}:8000/a",
    "http://[2001:DB8::1]:81/": "http://[2001:db8::1]:81/",
    "https://xn--bcher-kva.example/ü?ü=日": "https://xn--bcher-kva.example/%C3%BC?%C3%BC=%E6%97%A5",
    "https://a.example/%zz{}": "https://a.example/%zz%7B%7D",
}
NO_URLS = (
    "", "a.example", "/x", "https:/a.example", "https://", "https:///x", "ftp://a.example/",
)  # fmt: skip
NO_HOSTS = (
    "a.example/#x", "u@a.example/", "u:p@a.example/", "a.example:/", "a.example:0/", "a.example:65536/",
    "a.example:80:80/", "a..example/", ".example/", "-a.example/", "a-.example/", f"{'a' * 64}.example/",
    f"{'a.' * 127}example/", "1.2.3/", "1.2.3.4.5/", "256.1.1.1/", "01.1.1.1/", "0x1/", "1/", "a.0x1f/", "a.1/",
    "[1.2.3.4]/", "[::1/", "::1/", "[fe80::1%1]/", "a example/", "a.example/ x", "a.example\\x/", "a.example/\x00",
    "ü.example/", "a.example/" + "x" * 9000,
)  # fmt: skip


@pytest.mark.parametrize("text", URLS)
def test_a_url_is_read(text: str) -> None:
    url = parse_url(text)
    assert str(url) == URLS[text]
    assert parse_url(str(url)) == url, "what was read reads alike"


@pytest.mark.parametrize("text", [*NO_URLS, *(f"https://{host}" for host in NO_HOSTS)])
def test_what_is_no_plain_url_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_url(text)
    assert "u:p" not in str(refused.value)


@given(st.text(alphabet="htps:/.@[]#?%\\abxn-1270\r\n\u0435", max_size=40))
def test_whatever_is_read_is_read_once(text: str) -> None:
    try:
        url = parse_url(text)
    except Refused:
        return
    assert parse_url(str(url)) == url
    assert url.host.isascii()
    assert not set("@#\\ \r\n") & set(str(url))


def test_a_server_covers_its_scheme_name_and_port() -> None:
    plain, other, wide = parse_servers(("api.acme.example", f"http://{PRIVATE}:8000", "*.acme.example"))
    assert plain.covers(parse_url("https://api.acme.example/x"))
    assert not plain.covers(parse_url("http://api.acme.example/x"))
    assert not plain.covers(parse_url("https://api.acme.example:444/x"))
    assert not plain.covers(parse_url("https://a.api.acme.example/"))
    assert other.covers(parse_url(f"http://{PRIVATE}:8000/"))
    assert wide.covers(parse_url("https://a.b.acme.example/"))
    assert not wide.covers(parse_url("https://acme.example/"))
    assert not wide.covers(parse_url("https://badacme.example/"))
    assert str(wide) == "https://*.acme.example"
    assert parse_server(" HTTPS://API.acme.example:443 ") == plain


@pytest.mark.parametrize("text", ["", "*", "*.com", "*.1.2.3.4", "a b", "https://a.example/x", "ftp://a.example"])
def test_what_names_no_server_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_server(text)


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "193.99.144.80"])
def test_addresses_of_the_internet_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    (
        "0.0.0.0 10.1.2.3 100.64.0.1 100.100.100.200 127.0.0.1 127.9.9.9 169.254.169.254 172.16.0.1 172.31.255.255 "
        "192.0.0.192 192.168.1.1 198.18.0.1 168.63.129.16 224.0.0.1 255.255.255.255 :: ::1 ::ffff:8.8.8.8 ::8.8.8.8 "
        "64:ff9b::808:808 fe80::1 fec0::1 fc00::1 fd00:ec2::254 ff02::1 2001::1 2001:db8::1 2002:7f00:1:: 3fff::1"
    ).split(),
)
def test_addresses_of_other_networks_are_not(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@given(st.ip_addresses())
def test_what_is_public_is_global_for_the_standard_library_too(address: ipaddress.IPv4Address) -> None:
    assert not is_public(address) or (address.is_global and not address.is_multicast)
