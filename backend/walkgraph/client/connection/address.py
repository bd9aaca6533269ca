"""Where a running service is."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from walkgraph.client.errors import Unreachable
from walkgraph.settings import Settings, read_token

_END = "-----END CERTIFICATE-----"


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a running service leaves in its home for those on the same machine."""

    pid: int
    url: str
    certificate: str | None = None
    """The file of the certificate that it shows, where it speaks https."""


def read_address(settings: Settings) -> Address | None:
    """None where no service runs in this home."""
    try:
        return msgspec.json.decode(settings.address_file.read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def trusted(settings: Settings | None = None) -> ssl.SSLContext | None:
    """What a service of this home shows to be who it is: its very certificate, whatever names that has, since it is
    reached by the machine's own address. None where it speaks http, or is another machine's. Raises Unreachable."""
    settings = settings or Settings()
    address = read_address(settings) if settings.url is None else None
    if address is None or address.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        # The first one is its own; who signed it may have signed others.
        own = Path(address.certificate).read_text(encoding="ascii").partition(_END)[0] + _END + "\n"
        context.load_verify_locations(cadata=own)
    except (OSError, ValueError):
        raise Unreachable(f"the service's certificate `{address.certificate}` can't be read") from None
    return context


def find(settings: Settings | None = None) -> tuple[str, str]:
    """(address, token) of the service that the settings name, or that runs in their home. Raises Unreachable."""
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
