"""`walkgraph keys`: make, list and revoke keys for clients."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json
from walkgraph.cli.show.spans import moment, seconds
from walkgraph.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from walkgraph.client import Client
    from walkgraph.client.shown import Key


class Scope(StrEnum):
    INFER = "infer"
    READ = "read"
    DEPLOY = "deploy"
    ADMIN = "admin"


_ID_LENGTH = 8

command = typer.Typer(
    help="Make keys for clients, list and revoke them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@command.command("add")
def add(
    name: Annotated[str, typer.Argument(help="A name for people, unique among valid keys.")],
    scope: Annotated[list[Scope], typer.Option(help="A permission; may be given several times.")],
    requests_per_minute: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="At most a sixth of them at once. [default: no limit]")
    ] = None,
    concurrent: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="The most runs at once. [default: no limit]")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="Lifetime: `12h`, `30d`, `8w`. [default: until revoked]")] = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is printed only once, alone on standard output, so that it can go straight into a file."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    span = None if expires is None else seconds(expires)
    with Client.local(Settings()) as client:
        made = client.add_key(
            name,
            [one.value for one in scope],
            requests_per_minute=requests_per_minute,
            concurrent=concurrent,
            expires_in=span,
        )
    if as_json:
        output.as_json(made)
        return
    output.line(made["secret"])
    output.note(f"key {made['id']} `{name}`: {', '.join(made['scopes'])}; it is not shown again")


@command.command("list")
def show(
    former: Annotated[bool, typer.Option("--former", help="Include revoked and expired keys.")] = False,
    as_json: Json = False,
) -> None:
    """List keys with their permissions and last use."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        keys = client.keys(former=former)
    if as_json:
        output.as_json(keys)
        return
    if not keys:
        output.line("there is no key; make one with `walkgraph keys add NAME --scope infer`")
        return
    columns = ("KEY", "NAME", "SCOPES", "A MINUTE", "AT ONCE", "RUNNING", "LAST USED", "ENDS")
    output.table(columns, map(_row, keys), right=(3, 4, 5))


@command.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(help="Its id, or the name of a valid one.")], as_json: Json = False
) -> None:
    """Revoke a key at once and close its open connections."""
    from walkgraph.client import Client
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        revoked = client.revoke_key(_named(client, key))
    if as_json:
        output.as_json(revoked)
    else:
        output.line(f"key {revoked['id']} `{revoked['name']}` is revoked")


def _named(client: Client, given: str) -> str:
    """Id of the key with this id or name. Raises NotFound; InvalidInput for a secret, which would stay in the shell's
    history."""
    if given.startswith("wg_"):
        raise InvalidInput("name a key by its id or its name, never by its secret")
    listed = client.keys()
    found = next((key for key in listed if given in (key["id"], key["name"])), None)
    if found is None:
        raise NotFound(f"there is no valid key `{given}`; see `walkgraph keys list`")
    return found["id"]


def _row(key: Key) -> tuple[str | int, ...]:
    ends = moment(key["expires_at"], "never")
    if key["revoked_at"] is not None:
        ends = f"revoked {moment(key['revoked_at'])}"
    elif not key["valid"]:
        ends = f"expired {ends}"
    return (
        key["id"],
        key["name"],
        ",".join(key["scopes"]),
        key["requests_per_minute"] or "-",
        key["concurrent"] or "-",
        key["running"],
        moment(key["used_at"], "never"),
        ends,
    )
