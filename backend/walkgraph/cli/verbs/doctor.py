"""`walkgraph doctor`: check whether this machine can run Walkgraph, with advice where it can't."""

from __future__ import annotations

from typing import Annotated

import typer

from walkgraph.cli import output
from walkgraph.cli.doctor import diagnosing
from walkgraph.cli.options import Json


def command(
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Check the hosts of the Ray cluster too, which takes some seconds."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check versions, GPUs, compilers, memory, limits, the home, weights, database and service."""
    found = _found(cluster=cluster)
    if as_json:
        output.as_json([finding._asdict() for finding in found])
    else:
        _print(found)
    raise typer.Exit(1 if any(finding.level == "fail" for finding in found) else 0)


def _found(*, cluster: bool) -> list[diagnosing.Finding]:
    """All findings; wrong settings are the only finding, as nothing else can be checked without them."""
    from pydantic import ValidationError

    from walkgraph.cli.doctor.clustering import cluster_findings
    from walkgraph.cli.doctor.examining import examine
    from walkgraph.settings import Settings

    try:
        settings = Settings()
        return [*diagnosing.findings(examine(settings)), *(cluster_findings(settings) if cluster else ())]
    except ValidationError as error:
        return [diagnosing.wrong_setting(one["loc"], one["msg"]) for one in error.errors()]


def _print(found: list[diagnosing.Finding]) -> None:
    output.table(("", "WHAT", ""), [(finding.level, finding.what, finding.detail) for finding in found])
    todo = [finding for finding in found if finding.do]
    if todo:
        output.line("\nwhat to do:")
    for finding in todo:
        output.line(f"  {finding.what}: {finding.do}")
