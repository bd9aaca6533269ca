# ruff: noqa: N999 (the word of the command)
"""`walkgraph import`: make a graph and placements from a folder of public weights. Needs no service and no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.importing.making import Made
    from walkgraph.importing.recognising import Recognised
    from walkgraph.placement.hardware import Hardware

SECTION = "Graphs"


def command(
    folder: Annotated[
        Path, typer.Argument(help="Folder with the checkpoint's config and safetensors files.", file_okay=False)
    ],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the graph; default: made from the folder's.")
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for the documents; default: here.")] = None,
    save: Annotated[bool, typer.Option("--save", help="Save them in the running service instead.")] = False,
    gpus: Annotated[
        str | None, typer.Option(help="Plan for GPUs that need not exist here: `2x141GB`.", metavar="COUNTxMEMORY")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recognize a public checkpoint, check its tensors, and write a graph and placements that serve it."""
    from walkgraph.checkpoints.contents import read
    from walkgraph.importing.making import make
    from walkgraph.importing.recognising import recognise

    if save and out is not None:
        raise typer.BadParameter("use either `--save` or `--out`", param_hint="--save")
    found = recognise(read(folder))
    problems = found.problems()
    if problems:
        _refuse(found, problems, as_json=as_json)
    made = make(found, name, _hardware(gpus))
    written = _saved(made) if save else _written(made, out or Path())
    if as_json:
        documents = {"warnings": made.warnings, "graph": made.graph, "placements": made.placements, "unfit": made.unfit}
        output.as_json({**_told(found), "ok": True, "problems": [], **documents, "written": written})
        return
    _print(found, made, written)


def _hardware(gpus: str | None) -> Hardware:
    from walkgraph.errors import InvalidInput
    from walkgraph.placement.document import assume
    from walkgraph.placement.hardware import find_hardware

    if gpus is None:
        return find_hardware()
    try:
        return assume(find_hardware(), gpus)
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint="--gpus") from error


def _refuse(found: Recognised, problems: list[str], *, as_json: bool) -> None:
    """Report why the checkpoint can't be served; nothing is written."""
    if as_json:
        output.as_json({**_told(found), "ok": False, "problems": problems})
    else:
        output.complain(f"`{found.contents.name}` is {found.family.title}, and can't be served as it is:", problems)
    raise typer.Exit(1)


def _count(parameters: int) -> str:
    return f"{parameters / 1e9:.2f} B" if parameters >= 1e8 else f"{parameters / 1e6:.2f} M"


def _told(found: Recognised) -> dict[str, Any]:
    return {
        "folder": str(found.contents.folder),
        "family": found.family.name,
        "parameters": found.parameters,
        "bytes": found.bytes,
        "dtypes": dict(found.dtypes),
    }


def _written(made: Made, folder: Path) -> list[str]:
    """Write the documents. Raises Conflict rather than overwriting a document that differs."""
    from walkgraph.errors import Conflict, InvalidInput
    from walkgraph.graph.codec import dumps, load, pretty

    texts = {f"{made.graph['name']}.json": dumps(load(made.graph))}
    texts |= {f"{placement['name']}.json": pretty(placement) + "\n" for placement in made.placements}
    for name, text in texts.items():
        path = folder / name
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise Conflict(f"`{path}` exists already with other content; give `--name` or another `--out`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(f"`{folder}` can't be written: {error.strerror}") from None
    return [str(folder / name) for name in texts]


def _saved(made: Made) -> list[str]:
    """Save the documents in the running service; existing ones are not replaced."""
    from walkgraph.client import Client
    from walkgraph.graph.codec import dump, load
    from walkgraph.settings import Settings

    with Client.local(Settings()) as client:
        client.put_document("graph", made.graph["name"], dump(load(made.graph)))
        for placement in made.placements:
            client.put_document("placement", placement["name"], placement)
    return [made.graph["name"], *(placement["name"] for placement in made.placements)]


def _print(found: Recognised, made: Made, written: list[str]) -> None:
    from walkgraph.settings import Settings

    contents = found.contents
    types = ", ".join(f"{count} tensors of {dtype}" for dtype, count in found.dtypes.items())
    output.line(f"{contents.name} is {found.family.title}: {_count(found.parameters)} parameters, {types}")
    output.line(f"{output.size(found.bytes)} of weights, and every tensor matches the network\n")
    for name in written:
        output.line(f"wrote {name}")
    for name, reason in made.unfit.items():
        output.line(f"no placement `{name}`: {reason}")
    for key, folder in made.beside.items():
        output.line(f"`{key}` is read from {folder}, beside it")
    for warning in made.warnings:
        output.complain(warning)
    root = contents.folder.parent
    if root not in [path.resolve() for path in Settings().checkpoint_roots]:
        output.line("\nstart the service with the folder's parent as a weight root:")
        output.line(f"  WALKGRAPH_CHECKPOINT_ROOTS='[\"{root}\"]' walkgraph up")
    output.line("\nthen")
    output.line("  " + " ".join(["walkgraph deploy", *written[:2]]))
