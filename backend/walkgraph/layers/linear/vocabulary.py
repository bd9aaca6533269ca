"""The embedding table and the head of a language model, whose rows are divided over the shards of a tensor-parallel
group.

Shape letters: R rows, W model width, V vocabulary, U vocabulary of this shard.
"""

from torch import Tensor, nn

from walkgraph.checkpoints.sharding.cut import Cut
from walkgraph.collectives.base import Shard


class VocabularyEmbedding(nn.Embedding):
    """Its weight is `[U, W]`."""

    def __init__(self, vocab: int, width: int, shard: Shard) -> None:
        cut = Cut(0, vocab, shard.index, shard.count)
        super().__init__(cut.length, width)
        self._cut, self._shard = cut, shard

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (torch's name)
        """ids int64 `[R]` -> `[R, W]`."""
        if self._shard.count == 1:
            return super().forward(input)
        own = input - self._cut.start
        beyond = (own < 0) | (own >= self._cut.length)
        # One shard has the row, and the sum with zeros is exact.
        rows = super().forward(own.masked_fill(beyond, 0)).masked_fill(beyond[..., None], 0)
        return self._shard.sum(rows)


def vocabulary_head(width: int, vocab: int, shard: Shard) -> nn.Linear:
    """A head whose weight is `[U, W]`."""
    return nn.Linear(width, Cut(0, vocab, shard.index, shard.count).length, bias=False)


def whole_logits(logits: Tensor, vocab: int, shard: Shard) -> Tensor:
    """The logits of each shard `[R, U]` -> `[R, V]`, tokens adjacent."""
    whole = shard.gather(logits)
    return whole if whole.shape[-1] == vocab else whole[..., :vocab]
