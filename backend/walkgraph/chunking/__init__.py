"""Chunk policies: one file each, named as in graph documents."""

from walkgraph import plugins
from walkgraph.chunking.base import ChunkSpec, Policy
from walkgraph.placement.tables import StreamPlan

__all__ = ["ChunkSpec", "Policy", "make"]


def make(stream: StreamPlan) -> Policy:
    """The policy of a stream, from its plan; raises InvalidInput for impossible numbers."""
    policy: type[Policy] = plugins.load(__name__, stream.policy, "Policy")
    return policy(continue_after_done=stream.continue_after_done, **stream.settings)
