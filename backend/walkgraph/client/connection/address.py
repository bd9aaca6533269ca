"""The address of a running service."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from walkgraph.client.errors import Unreachable
from walkgraph.settings import Settings, read_token

_END = "-----END CERTIFICATE-----"


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file that a running service leaves in its home for programs on the same machine."""

    pid: int
    url: str
    certificate: str | None = None
    """File of the service's certificate, if it speaks https."""


def read_address(settings: Settings) -> Address | None:
    """The address file; None if no service runs in this home."""
    try:
        return msgspec.json.decode(settings.address_file.read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def trusted(settings: Settings | None = None) -> ssl.SSLContext | None:
    """A TLS context that trusts exactly the certificate of this home's service, whatever names it has, as the service
    is reached by the machine's own address. None for plain http or another machine's service. Raises Unreachable."""
    settings = settings or Settings()
    address = read_address(settings) if settings.url is None else None
    if address is None or address.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        # The first certificate is the service's own; its issuers may have signed others.
        own = Path(address.certificate).read_text(encoding="ascii").partition(_END)[0] + _END + "\n"
        context.load_verify_locations(cadata=own)
    except (OSError, ValueError):
        raise Unreachable(f"the service's certificate `{address.certificate}` can't be read") from None
    return context


def find(settings: Settings | None = None) -> tuple[str, str]:
    """(address, token) of the service that the settings name or that runs in their home. Raises Unreachable."""
    settings = settings or Settings()
    token = read_token(settings)
    if settings.url is not None:
        if token is None:
            raise Unreachable(f"there is no token for {settings.url}; set `WALKGRAPH_TOKEN`")
        return settings.url.rstrip("/"), token
    address = read_address(settings)
    if address is None or token is None:
        raise Unreachable(f"no Walkgraph service is running in `{settings.home}`; start one with `walkgraph up`")
    return address.url, token
