"""Chunk policies: one file each, named as in graph documents."""

from functools import cache

from walkgraph import plugins
from walkgraph.chunking.base import ChunkSpec, Policy
from walkgraph.placement.tables import StreamPlan

__all__ = ["ChunkSpec", "Policy", "make"]


def make(stream: StreamPlan) -> Policy:
    """The policy of a stream, from its plan; raises InvalidInput for impossible numbers."""
    return _policy(stream.policy)(continue_after_done=stream.continue_after_done, **stream.settings)


@cache
def _policy(name: str) -> type[Policy]:
    """Looked up once: a lookup lists a folder, and every run makes the policies of its streams."""
    policy: type[Policy] = plugins.load(__name__, name, "Policy")
    return policy
