"""Shell completion: names that the service and this installation know.

Fast, and silent on any error, as a shell would print the message in the middle of the line being typed.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from walkgraph import resources

if TYPE_CHECKING:
    from walkgraph.client import Client

PATIENCE = 1.0
"""Seconds to wait for the service."""
_RUNS = 50


def deployments(incomplete: str) -> list[str]:
    return _starting(incomplete, _asked(lambda client: (found["id"] for found in client.deployments())))


def tasks(ctx: typer.Context, incomplete: str) -> list[str]:
    """The tasks of the deployment given before."""
    deployment = ctx.params.get("deployment")
    if not deployment:
        return []
    return _starting(incomplete, _asked(lambda client: (found["name"] for found in client.tasks(deployment))))


def runs(incomplete: str) -> list[str]:
    """`last` and the newest runs, by whole ids."""
    return _starting(incomplete, ["last", *_asked(lambda client: (r["id"] for r in client.runs(None, _RUNS)))])


def queued_runs(incomplete: str) -> list[str]:
    """The caller's runs that wait or go on, by whole ids."""
    return _starting(
        incomplete,
        _asked(
            lambda client: (run["run"] for found in client.deployments() for run in client.queue(found["id"])["runs"])
        ),
    )


def graphs(incomplete: str) -> list[str]:
    stored = _asked(lambda client: (found["name"] for found in client.graphs()))
    return _documents("graphs", stored, incomplete)


def placements(incomplete: str) -> list[str]:
    stored = _asked(lambda client: (found["name"] for found in client.placements()))
    return _documents("placements", stored, incomplete)


def graphs_here(incomplete: str) -> list[str]:
    """Graphs for verbs that need no service."""
    return _documents("graphs", (), incomplete)


def placements_here(incomplete: str) -> list[str]:
    return _documents("placements", (), incomplete)


def graphs_and_runs(incomplete: str) -> list[str]:
    return [*graphs_here(incomplete), *runs(incomplete)]


def components(incomplete: str) -> list[str]:
    from walkgraph.components import catalogue

    return _starting(incomplete, catalogue())


def _documents(kind: resources.Kind, stored: Iterable[str], incomplete: str) -> list[str]:
    here = resources.stored_as_graphs() if kind == "graphs" else resources.bundled(kind)
    names = dict.fromkeys([*here, *stored])
    return [*_starting(incomplete, names), *_files(incomplete)]


def _files(incomplete: str) -> Iterator[str]:
    """Documents and folders whose path starts with this."""
    folder, _, start = incomplete.rpartition("/")
    base = Path(folder or ("/" if incomplete.startswith("/") else "."))
    try:
        entries = sorted(path for path in base.iterdir() if path.name.startswith(start) and start)
    except OSError:
        return
    for path in entries:
        shown = incomplete[: len(incomplete) - len(start)] + path.name
        if path.is_dir():
            yield f"{shown}/"
        elif path.suffix in (".json", ".py"):
            yield shown


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _asked(ask: Callable[[Client], Iterable[str]]) -> list[str]:
    """The service's names; empty if there is no service or it doesn't answer in time."""
    from walkgraph.errors import WalkgraphError
    from walkgraph.settings import Settings, is_running

    # Wrong settings raise ValueError, and so do answers of another program.
    try:
        settings = Settings()
        if settings.url is None and not is_running(settings):
            return []
        from walkgraph.client import Client, ClientError
    except (WalkgraphError, ValueError, OSError):
        return []
    try:
        with _at_most(PATIENCE), Client.local(settings) as client:
            return list(ask(client))
    except (ClientError, WalkgraphError, ValueError, KeyError, TypeError, OSError):
        return []


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after this many seconds, whatever the block is waiting for."""

    def late(*_: Any) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
