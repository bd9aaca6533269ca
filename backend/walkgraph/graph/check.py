"""check(document) -> every problem, each with its place, a stable code and advice. Pure; never raises.

The structure is checked first, entry by entry; then the meaning of all well-formed parts. Consequences of a problem are
not reported again: a reference to a broken entry is silent, and so is a port that a broken edge may have fed.
"""

from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.checks.called import with_own
from walkgraph.graph.checks.calls import check_calls
from walkgraph.graph.checks.choices import check_choices
from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.edges import check_edges
from walkgraph.graph.checks.maps import check_maps
from walkgraph.graph.checks.nodes import check_nodes
from walkgraph.graph.checks.states import check_states
from walkgraph.graph.checks.streams import check_streams
from walkgraph.graph.checks.tasks import check_tasks
from walkgraph.graph.checks.unused import check_unused
from walkgraph.graph.checks.walks import check_walks
from walkgraph.graph.codec import dump
from walkgraph.graph.document import Graph
from walkgraph.graph.problems import Problem, Report
from walkgraph.graph.reading.wellformed import Draft

__all__ = ["Problem", "Report", "check"]


def check(document: object, catalogue: Catalogue) -> Report:
    """Judge any JSON value, or a Graph. Pointers are into the value as given, or into `dump` of a Graph."""
    draft = Draft(dump(document) if isinstance(document, Graph) else document)
    context = Context(draft, with_own(catalogue, draft.graph, draft.given))
    check_nodes(context)
    check_calls(context)
    check_states(context)
    check_walks(context)
    check_edges(context)
    check_choices(context)
    check_maps(context)
    check_streams(context)
    check_tasks(context)
    check_unused(context)
    problems = (*draft.problems, *context.problems)
    return Report(problems) if draft.problems else Report(problems, context.graph, draft.graph)
