"""`walkgraph secrets`: secrets that calls of nodes send, kept on this machine."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Annotated

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

command = typer.Typer(
    help="Keep secrets that nodes send to servers, by name.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(help="Documents write `secret:NAME`.")]


@command.command("set")
def put(
    name: Name,
    host: Annotated[list[str], typer.Option(help="A server that may receive it; may be given several times.")],
) -> None:
    """Set a secret to the line on standard input. A running service uses it from the next call on."""
    from walkgraph.service.outward.vault import MOST_BYTES, Vault
    from walkgraph.settings import Settings, prepare_home

    settings = Settings()
    if sys.stdin.isatty():
        value = getpass(f"value of `{name}`, which is not shown: ")
    else:
        value = sys.stdin.read(MOST_BYTES + 2)
    prepare_home(settings)
    made = Vault(settings.secrets_folder).set(name, value.removesuffix("\n").removesuffix("\r"), host)
    output.line(f"secret `{name}` goes to {', '.join(map(str, made.servers))}")


@command.command("list")
def show(as_json: Json = False) -> None:
    """List the names of secrets and the servers that may receive them."""
    from walkgraph.service.outward.vault import Vault
    from walkgraph.settings import Settings

    found = Vault(Settings().secrets_folder).listed()
    if as_json:
        output.as_json([{"name": one.name, "hosts": [str(server) for server in one.servers]} for one in found])
        return
    if not found:
        output.line("there is no secret; add one with `walkgraph secrets set NAME --host SERVER`")
        return
    output.table(("SECRET", "SERVERS"), ((one.name, ", ".join(map(str, one.servers)) or "none") for one in found))


@command.command("remove")
def remove(name: Name) -> None:
    """Remove a secret."""
    from walkgraph.service.outward.vault import Vault
    from walkgraph.settings import Settings

    Vault(Settings().secrets_folder).remove(name)
    output.line(f"secret `{name}` is removed")
