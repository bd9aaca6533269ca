"""Chooses the attention backend for the segments of a forward."""

import logging
from collections.abc import Sequence

import torch

from walkgraph.engine.kv.flashinfer_attention import FlashInferAttention, Workspace, unfit
from walkgraph.engine.kv.paged_attention import PaddedContexts, PagedAttention, PlacedSegment
from walkgraph.engine.kv.pool import Pool
from walkgraph.layers.attention.flashinfer import installed

_log = logging.getLogger(__name__)

AttentionBackend = PagedAttention | FlashInferAttention


class AttentionBackends:
    """The backends of one rank, and the memory that they keep from one forward to the next."""

    def __init__(self, contexts: PaddedContexts | None = None) -> None:
        """`contexts`: the padded contexts that PyTorch's backend keeps."""
        self.contexts = PaddedContexts() if contexts is None else contexts
        self._workspaces: dict[torch.device, Workspace] = {}
        self._logged: set[str] = set()
        """Reasons for PyTorch's backend on a GPU that were logged already."""

    def over(self, pool: Pool, segments: Sequence[PlacedSegment]) -> AttentionBackend:
        """The fastest backend that can serve these segments, over the pages of their pool."""
        on_gpu = pool.device.type == "cuda"
        why = unfit(pool.shape, segments, on_gpu and installed())
        if why is None:
            workspace = self._workspaces.setdefault(pool.device, Workspace(pool.device))
            return FlashInferAttention(pool, segments, workspace)
        if on_gpu and why not in self._logged:
            self._logged.add(why)
            _log.info("using PyTorch's attention: %s", why)
        return PagedAttention(pool, segments, self.contexts)
