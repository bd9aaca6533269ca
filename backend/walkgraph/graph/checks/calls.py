"""Nodes that call tasks: calls in a circle, calls that are too deep, and tasks that wait for a person. Nodes that call
servers outside: URLs that can't be read, and secrets that a document would tell."""

from collections.abc import Iterable

from walkgraph.errors import Refused
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.checks.called import MOST_DEEP
from walkgraph.graph.checks.context import Context
from walkgraph.graph.document import Node
from walkgraph.graph.reading.wellformed import Path
from walkgraph.servers import SECRET, header_lines, parse_url

_SECRETIVE = frozenset({"authorization", "cookie", "x-api-key", "api-key", "x-auth-token"})
_KEEP = "keep it in the service (`walkgraph secrets set NAME`) and write"


def check_calls(context: Context) -> None:
    for name, node in context.graph.nodes.items():
        component = context.catalogue.get(node.component)
        if component is not None and component.outside:
            _outside(context, name, node)
        if component is None or not component.task:
            continue
        path = ("nodes", name, "component")
        if component.asks:
            message = f"`{component.name}` waits for a person, and who calls it would hold its place for so long"
            context.add("call_asks", path, f"{message}; ask in this graph's own task")
        walks = {walk for walk, _ in context.uses_of.get(name, ())}
        callers = {f"{context.graph.name}/{task}" for walk in walks for task in context.tasks_of.get(walk, ())}
        reached = _reached(context.catalogue, (component.name,))
        if again := sorted(callers & reached):
            message = f"`{component.name}` leads back to `{again[0]}`, which calls it; tasks can't call each other"
            context.add("call_cycle", path, f"{message} in a circle")
        elif _depth(context.catalogue, component.name) > MOST_DEEP:
            message = f"`{component.name}` calls tasks that call tasks, more than {MOST_DEEP} deep below this graph"
            context.add("call_too_deep", path, f"{message}; call the last ones from fewer tasks")


def _outside(context: Context, name: str, node: Node) -> None:
    """Check what the node says literally about its requests."""
    for key, value in node.params.items():
        path = ("nodes", name, "params", key)
        if not isinstance(value, str) or value.startswith("="):
            continue
        if key in ("url", "base_url"):
            try:
                parse_url(value)
            except Refused as error:
                context.add("bad_url", path, f"`{key}`: {error}")
        elif key == "key" and value and not SECRET.fullmatch(value):
            context.add("plain_secret", path, f"a document tells its keys to all who read it; {_KEEP} `secret:NAME`")
        elif key == "headers":
            _headers(context, path, value)


def _headers(context: Context, path: Path, text: str) -> None:
    for name, value in header_lines(text):
        if not name or not value:
            context.add("bad_header", path, "`headers` has a line that is not `Name: value`; mend it")
        elif name.lower() in _SECRETIVE and not SECRET.search(value):
            message = f"the header `{name}` tells its value to all who read the document; {_KEEP} `secret:NAME` in it"
            context.add("plain_secret", path, message, "warning")


def _reached(catalogue: Catalogue, first: Iterable[str]) -> set[str]:
    """These tasks and all that they lead to."""
    found: set[str] = set()
    left = [*first]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            component = catalogue.get(name)
            left += component.calls if component else ()
    return found


def _depth(catalogue: Catalogue, name: str) -> int:
    """The number of calls one below the other that begin with a call of this task; MOST_DEEP + 1 for more."""
    level, depth = {name}, 0
    while level and depth <= MOST_DEEP:
        depth += 1
        level = {call for one in level if (found := catalogue.get(one)) for call in found.calls}
    return depth
