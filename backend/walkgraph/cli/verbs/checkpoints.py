"""`walkgraph checkpoints`: list the folders of weights on this machine, or what is published. Needs no service."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from walkgraph.cli import output
from walkgraph.cli.options import Json

if TYPE_CHECKING:
    from walkgraph.importing.surveying import Surveyed

SECTION = "Graphs"


def command(
    published: Annotated[
        bool, typer.Option("--published", help="List the weights that are published for each family instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the folders under the checkpoint roots: family, size, what is missing, whether the model fits here."""
    if published:
        _offered(as_json=as_json)
        return
    from walkgraph.importing.surveying import folders, survey
    from walkgraph.placement.hardware import find_hardware
    from walkgraph.settings import Settings

    roots, hardware = Settings().checkpoint_roots, find_hardware()
    found = [survey(path, hardware) for path in folders(roots)]
    if as_json:
        output.as_json([{**asdict(one), "root": str(one.root)} for one in found])
        return
    if not roots:
        output.line("no checkpoint root is set; name the folder that holds those of your models:")
        output.line("  WALKGRAPH_CHECKPOINT_ROOTS='[\"/models\"]' walkgraph up")
        return
    headers = ("FOLDER", "FAMILY", "PARAMETERS", "SIZE", "PRECISION", "")
    output.table(headers, [_row(one) for one in found], right=(2, 3))
    for one in found:
        if one.problems:
            output.complain(f"`{one.folder}` can't be imported:", list(one.problems))


def _row(one: Surveyed) -> tuple[str, str, str, str, str, str]:
    precision = ", ".join(one.dtypes)
    if one.problems:
        state = "can't be imported"
    elif not one.graph:
        state = "used by other models"
    else:
        state = "fits this machine" if one.placements else "too large for this machine"
    count = f"{one.parameters / 1e6:,.1f} M" if one.parameters else "–"
    return one.folder, one.title or "unknown", count, output.size(one.bytes), precision or "–", state


def _offered(*, as_json: bool) -> None:
    from walkgraph.importing.surveying import offered

    found = offered()
    if as_json:
        output.as_json([asdict(one) for one in found])
        return
    rows = [
        (one.title, each.repository, each.folder, output.size(each.bytes)) for one in found for each in one.published
    ]
    output.table(("FAMILY", "REPOSITORY", "FOLDER", "ABOUT"), rows, right=(3,))
    output.line(
        "\ndownload a repository into the folder named, under a checkpoint root; then `walkgraph import FOLDER`"
    )
