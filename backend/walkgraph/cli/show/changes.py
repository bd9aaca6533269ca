"""A deployment that starts or is switched: followed until it serves or has failed, and told in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from walkgraph.cli import output
from walkgraph.cli.show import progress

if TYPE_CHECKING:
    from walkgraph.client import Client
    from walkgraph.client.shown import Deployment

INTERRUPTED = 130


def awaited(client: Client, begun: Deployment) -> Deployment:
    """Follow a deployment until its change is over. An interruption leaves the change as it is, and exits."""
    try:
        return _last(client, client.deployment(begun["id"]))
    except KeyboardInterrupt:
        output.note(_goes_on(begun["id"], switched=bool(begun.get("next"))))
        raise typer.Exit(INTERRUPTED) from None


def tell(found: Deployment, *, as_json: bool) -> None:
    """Print it, and exit with 1 if the change failed."""
    if as_json:
        output.as_json(found)
    else:
        output.line(_sentence(found))
    raise typer.Exit(1 if found["state"] in ("failed", "stopped") or _next_failed(found) else 0)


def _last(client: Client, first: Deployment) -> Deployment:
    """The state after which nothing more is awaited."""
    found = first
    with progress.shown() as shown:
        for found in client.follow_deployment(first["id"]):
            shown.take(found)
            if _next_failed(found) or (not found.get("next") and found["state"] not in ("starting", "degraded")):
                break
    return found


def _goes_on(id_: str, *, switched: bool) -> str:
    """A remark for a person who stops waiting."""
    if switched:
        return f"\n`{id_}` is still being switched and serves the old version until then; see `walkgraph status`"
    return f"\n`{id_}` is still starting; `walkgraph status` shows its progress, `walkgraph undeploy {id_}` stops it"


def _next_failed(found: Deployment) -> bool:
    return (found.get("next") or {}).get("state") == "failed"


def _sentence(found: Deployment) -> str:
    text = f"{found['id']} is {found['state']}" + (f": {found['reason']}" if found["reason"] else "")
    coming: Any = found.get("next")
    if not coming:
        return text
    if coming["state"] == "failed":
        return f"{text}, as it was before; the new version failed: {coming['reason']}"
    return f"{text}; its new version is {coming['state']}"
