"""`walkgraph audit`: who changed what, when, and from where."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json
from walkgraph.cli.show.spans import moment, seconds

if TYPE_CHECKING:
    from walkgraph.client.shown import AuditEntry

_PAGE = 1000


def command(
    action: Annotated[str | None, typer.Option(help="`deployment.create`; or a kind: `deployment`, `key`.")] = None,
    caller: Annotated[str | None, typer.Option(help="A key's id, `token`, `studio` or `service`.")] = None,
    target: Annotated[str | None, typer.Option(help="The name of the changed object.")] = None,
    outcome: Annotated[Literal["begun", "done", "refused", "failed"] | None, typer.Option()] = None,
    since: Annotated[str | None, typer.Option(help="Only changes of the last `90m`, `12h`, `30d`.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most entries listed.")] = 50,
    as_json: Json = False,
) -> None:
    """List who changed deployments, documents and keys, newest last."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    after = None if since is None else time.time() - seconds(since)
    rows: list[AuditEntry] = []
    with Client.local(Settings()) as client:
        while len(rows) < limit:
            page = client.audit(
                action=action,
                caller=caller,
                target=target,
                outcome=outcome,
                since=after,
                before=rows[-1]["id"] if rows else None,
                limit=min(_PAGE, limit - len(rows)),
            )
            rows += page
            if len(page) < _PAGE:
                break
    rows.reverse()
    if as_json:
        output.as_json(rows)
    elif not rows:
        output.line("no changes")
    else:
        output.table(("WHEN", "WHO", "FROM", "WHAT", "NAME", "OUTCOME", ""), map(_row, rows))


def _row(entry: AuditEntry) -> tuple[str, ...]:
    who = f"{entry['caller']} {entry['caller_name']}".strip()
    details = " ".join(f"{name}={value}" for name, value in entry["details"].items() if value is not None)
    return (
        moment(entry["at"]),
        who,
        entry["address"] or "-",
        entry["action"],
        entry["target"],
        entry["outcome"],
        entry["reason"] or details,
    )
