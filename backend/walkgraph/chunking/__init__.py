"""Chunk policies: one file each, under the name that a graph document uses."""

from walkgraph import plugins
from walkgraph.chunking.base import ChunkSpec, Policy
from walkgraph.placement.tables import StreamPlan

__all__ = ["ChunkSpec", "Policy", "make"]


def make(stream: StreamPlan) -> Policy:
    """The policy of a stream, from its plan; raises InvalidInput for numbers that can't be met."""
    policy: type[Policy] = plugins.load(__name__, stream.policy, "Policy")
    return policy(continue_after_done=stream.continue_after_done, **stream.settings)
