"""Warnings before a run: nodes that call servers which the settings don't list, or send secrets that aren't there."""

from collections.abc import Iterable, Iterator

from walkgraph.errors import Refused
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem
from walkgraph.servers import SECRET, parse_url
from walkgraph.service.outward.vault import Vault
from walkgraph.settings import Settings


def unreachable(graph: Graph, catalogue: Catalogue, settings: Settings) -> tuple[Problem, ...]:
    """The reasons for which calls of this graph's nodes would be refused here, as far as its literals show it."""
    outside = {name: node for name, node in graph.nodes.items() if _calls_outside(catalogue, node.component)}
    if not outside:
        return ()
    names = {secret.name for secret in Vault(settings.secrets_folder).listed()}
    literals = (
        (f"/nodes/{name}/params/{key}", key, value)
        for name, node in outside.items()
        for key, value in node.params.items()
        if isinstance(value, str) and not value.startswith("=")
    )
    return tuple(_warnings(literals, settings, names))


def _warnings(literals: Iterable[tuple[str, str, str]], settings: Settings, names: set[str]) -> Iterator[Problem]:
    servers = settings.callable_servers()
    for pointer, key, value in literals:
        if key in ("url", "base_url"):
            try:
                url = parse_url(value)
            except Refused:
                continue  # `check` has said so
            if not any(server.covers(url) for server in servers):
                message = f"nodes may not call `{url.origin}` here; an operator allows it in `WALKGRAPH_CALL_HOSTS`"
                yield Problem("server_not_listed", pointer, message, "warning")
        elif key in ("headers", "key"):
            for name in dict.fromkeys(SECRET.findall(value)):
                if name not in names:
                    message = (
                        f"there is no secret `{name}` here; an operator adds it with `walkgraph secrets set {name}`"
                    )
                    yield Problem("no_secret", pointer, message, "warning")


def _calls_outside(catalogue: Catalogue, name: str) -> bool:
    component = catalogue.get(name)
    return component is not None and component.outside
