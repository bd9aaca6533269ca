"""Where a running service is."""

from __future__ import annotations

import msgspec

from walkgraph.client.errors import Unreachable
from walkgraph.settings import Settings, read_token


class Address(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a running service leaves in its home for those on the same machine."""

    pid: int
    url: str


def read_address(settings: Settings) -> Address | None:
    """None where no service runs in this home."""
    try:
        return msgspec.json.decode(settings.address_file.read_bytes(), type=Address)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


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
