"""The linears of one decoder layer for thousands of rows, whichever MLP it has.

Shape letters: M rows, W model width.
"""

from torch import Tensor

from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.flow_linear import MLP_ROWS, AttentionLinears, FlowLinears, PlainFlowLinears
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.layers.norm.rms_norm import rms_norm


class SparseFlowLinears(AttentionLinears):
    """The linears of a packed layer whose MLP is a mixture of experts."""

    def __init__(self, layer: DecoderLayer, suffix: str, mlp: SparseMLP) -> None:
        super().__init__(layer, suffix)
        self._mlp = mlp

    def mlp(self, x: Tensor) -> None:
        for rows in x.split(MLP_ROWS):
            rows.add_(self._layer.shard.sum(self._mlp(rms_norm(rows, self._second.weight, self._second.eps))))


def row_linears(layer: DecoderLayer, suffix: str) -> FlowLinears:
    """The linears for the layer's MLP, with weights in the rows' type. Raises RuntimeError for a layer that is not
    packed."""
    mlp = layer.get_submodule(f"mlp{suffix}")
    return SparseFlowLinears(layer, suffix, mlp) if isinstance(mlp, SparseMLP) else PlainFlowLinears(layer, suffix)
