"""The ends of a Walk's edges, spelled as in the document."""

from walkgraph.placement.tables import EdgePlan, WalkPlan


def source_of(walk: WalkPlan, edge: EdgePlan) -> str:
    """`use.port` or `@in.name`; empty for a loop's index and a stream."""
    match edge.source.kind:
        case "use":
            return f"{walk.uses[edge.source.use].name}.{edge.source.port}"
        case "input":
            return f"@in.{edge.source.port}"
        case "loop" | "stream":
            return ""


def named_source(walk: WalkPlan, edge: EdgePlan) -> str:
    """The source as the document's edge names it: `@merge.name` for a merge, otherwise as in `source_of`."""
    return f"@merge.{edge.merged}" if edge.merged else source_of(walk, edge)


def target_of(walk: WalkPlan, edge: EdgePlan) -> str:
    """`use.port`, `@out.name` or `@result.name`; empty for a stream."""
    match edge.target.kind:
        case "use":
            return f"{walk.uses[edge.target.use].name}.{edge.target.port}"
        case "out" | "result":
            return f"@{edge.target.kind}.{edge.target.port}"
        case "stream":
            return ""
