"""Calls of components that call servers outside, without a service around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from walkgraph.components import catalogue
from walkgraph.servers import parse_servers
from walkgraph.service.outward.exchange import Outside, Resolve
from walkgraph.service.outward.given import Given
from walkgraph.service.outward.serving import COMPONENTS
from walkgraph.service.outward.vault import Vault
from walkgraph.wire import messages as m


def outside(*servers: str, vault: Path = Path("/nowhere"), resolve: Resolve | None = None) -> Outside:
    """`resolve`: without one, names have no addresses, as a test asks no name server."""
    return Outside(parse_servers(servers), Vault(vault), resolve or names())


def names(**addresses: Sequence[str]) -> Resolve:
    """Resolves these names, with `_` for dots."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses.get(host.replace(".", "_"), ())

    return resolve


def given(
    component: str,
    params: Mapping[str, Any],
    inputs: Mapping[str, m.Value] | None = None,
    outputs: Sequence[str] = ("text",),
    pieces: Sequence[str] = (),
    sent: list[tuple[str, m.Value]] | None = None,
) -> Given:
    """A call with the component's defaults. `sent` gets the pieces."""
    declared = catalogue()[component].params
    assert set(params) <= set(declared), set(params) - set(declared)
    defaults = {name: param.default for name, param in declared.items() if param.default is not None}
    kept = [] if sent is None else sent
    return Given(
        place=f"a/{component}",
        params={**defaults, **params},
        seed=7,
        inputs=inputs or {},
        outputs=outputs,
        pieces=pieces,
        literal=params,
        send=lambda name, value: kept.append((name, value)),
    )


async def called(
    component: str, reached: Outside, params: Mapping[str, Any], *args: Any, **more: Any
) -> Mapping[str, m.Value]:
    return await COMPONENTS[component](given(component, params, *args, **more), reached)
