"""Forwards of BAGEL's und set alone: text, and pictures that it sees.

The rows of all calls are one tensor through all layers, and keys and values go from the product straight to their
pages. Text is causal, with one position per row. A picture is one block with one position, BOI, its tokens and EOI;
only its keys and values are kept.

Shape letters: B pictures, R rows of all calls, W model width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from walkgraph.abi.states import Placed
from walkgraph.architectures.language.rows import RowLayers
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.mot import UND
from walkgraph.models.bagel.rows import EDGES


class UndRows:
    """Forwards of the und set's rows. Raises RuntimeError for a model that is not packed."""

    def __init__(self, model: Bagel) -> None:
        self._model, self._language = model, model.language_model.model
        self._layers = RowLayers(self._language.layers, UND, self._language.rope)

    def see(self, pictures: Sequence[Tensor], edges: Tensor, positions: Tensor, to: Placed) -> None:
        """Append pictures. pictures: tokens `[n, W]` of each; edges int64 `[2]`: BOI and EOI; positions `[B]`. `to`
        places the n + 2 rows of each picture, one picture after the other."""
        first, last = self._model.embed_text(edges).split(1)
        x = torch.cat([part for tokens in pictures for part in (first, tokens.to(first.dtype), last)])
        counts = [len(tokens) + EDGES for tokens in pictures]
        counts = counts if len(set(counts)) > 1 else None
        self._layers.last_keys(x, self._layers.turns(positions), to, counts)

    def read(self, ids: Tensor, positions: Tensor, asked: Tensor, to: Placed) -> Tensor:
        """Append text of any calls: ids and positions int64 `[R]`; asked int64 `[K]`: rows whose states are needed ->
        those states, normed, `[K, W]`. Nothing is read on the host."""
        x = self._layers.through(self._model.embed_text(ids), self._layers.turns(positions), to)
        return self._language.norm(x[asked])
