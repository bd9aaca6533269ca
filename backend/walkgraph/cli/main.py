"""The entry point: verbs are found by file name; errors become one sentence and an exit code.

0  done                       3  no service can be reached
1  it failed, and why         4  what was compared is different
2  the command is wrong       130  interrupted
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from walkgraph import __version__, plugins
from walkgraph.cli import output
from walkgraph.errors import WalkgraphError

FAILED, UNREACHABLE = 1, 3
VERBS = "walkgraph.cli.verbs"
_EXIT_CODES = "Exit codes: 0 done, 1 failed, 2 wrong command, 3 no service reached, 4 different, 130 interrupted."


SECTIONS = ("Service", "Graphs", "Deployments", "Runs")
"""Sections of the help in this order. A verb's file names its own as `SECTION`; without one it goes to the first."""


class _Verbs(TyperGroup):
    """Lists the verbs by section."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in SECTIONS}
        for name, command in sorted(self.commands.items()):
            section = plugins.load(VERBS, name, "SECTION", SECTIONS[0])
            rows[section].append((name, command.get_short_help_str(62)))
        for section, listed in rows.items():
            if listed:
                with formatter.section(section):
                    formatter.write_dl(listed)


def _told_version(asked: bool) -> None:
    if asked:
        output.line(__version__)
        raise typer.Exit


def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_told_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Draw a multimodal model as a graph, place it, deploy it, run it."""


def build() -> typer.Typer:
    app = typer.Typer(
        cls=_Verbs,
        name="walkgraph",
        help="Draw a multimodal model as a graph, place it, deploy it, run it.",
        epilog=_EXIT_CODES,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for name in plugins.names(VERBS):
        command = plugins.load(VERBS, name, "command")
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
            continue
        app.command(name, context_settings=getattr(command, "settings", None))(command)
    return app


def main() -> None:
    try:
        build()()
    except Exception as error:
        code = _explained(error)
        if code is None:
            raise
        sys.exit(code)


def _explained(error: Exception) -> int | None:
    """Print what is wrong and return the exit code; None for an unexpected error."""
    if isinstance(error, WalkgraphError):
        output.complain(str(error))
        return FAILED
    # Imported late: `--help` does without the client.
    from walkgraph.client import ClientError, Unreachable

    if isinstance(error, ClientError):
        output.complain(str(error))
        return UNREACHABLE if isinstance(error, Unreachable) else FAILED
    return _wrong_settings(error)


def _wrong_settings(error: Exception) -> int | None:
    """The exit code for wrong settings; None for any other error."""
    from pydantic import ValidationError

    from walkgraph.cli.doctor import diagnosing

    if not isinstance(error, ValidationError) or error.title != "Settings":
        return None
    found = [diagnosing.wrong_setting(one["loc"], one["msg"]).detail for one in error.errors()]
    output.complain(f"the settings are wrong: {'; '.join(found)}")
    return FAILED


if __name__ == "__main__":
    main()
