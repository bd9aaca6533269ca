"""The streams that a device loop reads and feeds.

Its uses may read a stream item by item: the worker passes items on as they come, and no iteration is launched before
its item is there. One of its uses may feed streams.
"""

from walkgraph.graph.document import Fixed
from walkgraph.placement.compiler.loop_contents import LoopContents, listed
from walkgraph.placement.tables import EdgePlan


def against_streams(inside: LoopContents) -> str:
    """The reason that streams leave the loop stepped; empty if there is none."""
    feeding: set[int] = set()
    for edge in inside.walk.edges:
        if edge.source.kind == "stream" and inside.holds(edge.target.use) and (why := _against_items(inside, edge)):
            return why
        if edge.target.kind == "stream" and inside.holds(edge.source.use):
            feeding.add(edge.source.use)
    return "several of its uses feed streams, each at its own pace" if len(feeding) > 1 else ""


def _against_items(inside: LoopContents, edge: EdgePlan) -> str:
    """The reason that the device can't take the items of a stream one by one; empty if it can. They come while the loop
    runs, so no iteration is launched before its item is there."""
    use, stream = inside.walk.uses[edge.target.use], inside.context.assignment.graph.streams[edge.source.index]
    component, chunks = inside.context.catalogue.get(inside.node(use).component), stream.chunks
    feeds = f"stream `{stream.name}` feeds"
    if component is None or edge.target.port not in component.itemwise:
        return f"{feeds} it"
    if not isinstance(chunks, Fixed) or chunks.size != 1 or not chunks.continue_after_done:
        return f"{feeds} it in chunks or ends it"
    if inside.deep(use) or not edge.enter_each or edge.sliced != inside.outer:
        return f"{feeds} it, not one item an iteration"
    if inside.conditional(use):
        return f"{feeds} `{use.name}`, which has a condition"
    return f"{feeds} it, and its uses lie on several ranks" if len({one.rank for one in inside.uses}) > 1 else ""


def fed_items(inside: LoopContents) -> str:
    """The streams that the core reads, as the end of a sentence about the loop."""
    edges = (edge for edge in inside.walk.edges if edge.source.kind == "stream" and inside.holds(edge.target.use))
    fed = dict.fromkeys(edge.source.port for edge in edges)
    return f"; {listed(fed)} feed{'s' if len(fed) == 1 else ''} it item by item" if fed else ""
