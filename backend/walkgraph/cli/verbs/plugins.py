"""`walkgraph plugins`: install packages with components of one's own, list them, remove them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json
from walkgraph.errors import NotFound, WalkgraphError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SECTION = "Service"

command = typer.Typer(
    help="Add packages with components of your own, list and remove them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@command.command("add")
def add(
    folder: Annotated[Path, typer.Argument(help="The plug-in's folder, with its pyproject.toml.", file_okay=False)],
    as_json: Json = False,
) -> None:
    """Install a plug-in's folder as editable into this environment, and list it. The service runs its code from then
    on, so add only what you trust."""
    from walkgraph import plugins
    from walkgraph.cli import packages
    from walkgraph.settings import Settings, added_plugins, list_plugins

    names = packages.declared_by(folder)
    packages.check_sources(folder, names)
    packages.install(folder)
    settings = Settings()
    list_plugins(settings, {*added_plugins(settings.home), *names})
    found = [_shown(point, "here") for _, point in plugins.listed(names)]
    if as_json:
        output.as_json(found)
    else:
        for one in found:
            _tell(one)
    if any(one["problem"] for one in found):
        raise typer.Exit(1)


@command.command("list")
def show(as_json: Json = False) -> None:
    """List plug-ins: installed ones, and by what they are listed."""
    from walkgraph import plugins
    from walkgraph.settings import Settings, added_plugins

    settings = Settings()
    by = {**dict.fromkeys(added_plugins(settings.home), "here"), **dict.fromkeys(settings.plugins, "WALKGRAPH_PLUGINS")}
    known = plugins.installed()
    found = [_shown(point, by.get(name)) for name, point in known.items()]
    found += [
        {"name": name, "listed": by[name], "problem": f"the plug-in `{name}` is not installed"}
        for name in by
        if name not in known
    ]
    if as_json:
        output.as_json(found)
        return
    if not found:
        output.line("there is no plug-in; make one with `walkgraph new component NAME`")
        return
    rows = [
        (one["name"], one["listed"] or "not listed", one.get("package", "-"), one["problem"] or _components(one))
        for one in found
    ]
    output.table(("PLUG-IN", "LISTED", "PACKAGE", "COMPONENTS"), rows)


@command.command("remove")
def remove(
    name: Annotated[str, typer.Argument(help="The plug-in's name.")],
    keep: Annotated[bool, typer.Option("--keep", help="Leave its package installed.")] = False,
    as_json: Json = False,
) -> None:
    """Take a plug-in from the list, and uninstall its package. Deployments that use it go on until they restart."""
    from walkgraph import plugins
    from walkgraph.cli import packages
    from walkgraph.settings import Settings, added_plugins, list_plugins

    settings = Settings()
    added = added_plugins(settings.home)
    if name not in added:
        advice = "take it out of WALKGRAPH_PLUGINS" if name in settings.plugins else "see `walkgraph plugins list`"
        raise NotFound(f"the plug-in `{name}` was not added here; {advice}")
    list_plugins(settings, set(added) - {name})
    known = plugins.installed()
    package = _package(known.get(name))
    others = [one for one in added if one != name and _package(known.get(one)) == package]
    gone = package is not None and not keep and not others
    if package is not None and gone:
        packages.uninstall(package)
    if as_json:
        output.as_json({"removed": name, "uninstalled": package if gone else None})
    else:
        output.line(f"{name} is removed" + (f", and `{package}` is uninstalled" if gone else ""))


def _package(point: EntryPoint | None) -> str | None:
    return point.dist.metadata["Name"] if point is not None and point.dist is not None else None


def _shown(point: EntryPoint, listed: str | None) -> dict[str, Any]:
    """A plug-in as JSON. Its file is read, never imported."""
    from walkgraph import plugins
    from walkgraph.functions.finding import source_file
    from walkgraph.functions.reading import declared

    found: dict[str, Any] = {
        "name": point.name,
        "listed": listed,
        "package": f"{_package(point)} {point.dist.version}" if point.dist is not None else "-",
        "kind": "functions" if point.group == plugins.FUNCTIONS else "declarations",
        "file": None,
        "components": None,
        "problem": None,
    }
    try:
        path, shown = source_file(point)
        found["file"] = str(path)
        if point.group == plugins.FUNCTIONS:
            made = declared(path, shown, point.module, point.name)
            found["components"] = [one.component.name for one in made.values()]
    except WalkgraphError as error:
        found["problem"] = str(error)
    return found


def _components(found: dict[str, Any]) -> str:
    return ", ".join(found["components"]) if found["components"] is not None else f"see {found['file']}"


def _tell(found: dict[str, Any]) -> None:
    from walkgraph.settings import Settings, is_running

    if found["problem"]:
        output.complain(f"`{found['name']}` is added, and can't be used yet: {found['problem']}")
        return
    output.line(f"{found['name']} is added: {_components(found)}")
    if found["components"] is None and is_running(Settings()):
        output.line("  it declares its components in a module that the service imports: restart the service")
