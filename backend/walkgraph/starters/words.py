"""Tokenizers of small worlds: byte-level BPE in which every word of a grammar is one token.

Any other text still has tokens (its bytes); capitals are lowered.
"""

import itertools
from collections.abc import Sequence

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

_SPACE = "Ġ"


def word_tokenizer(words: Sequence[str], before: Sequence[str] = (), after: Sequence[str] = ()) -> Tokenizer:
    """Ids: the special tokens `before`, the bytes, the special tokens `after`, then words and their parts.

    Merges are added word by word, each on top of the pieces that earlier merges leave of the word, so earlier words
    stay whole.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: index for index, piece in enumerate([*before, *alphabet, *after])}
    merges: list[tuple[str, str]] = []
    for word in [*words, *(_SPACE + word for word in words)]:
        pieces = _apply(list(word), merges)
        while len(pieces) > 1:
            merges.append((pieces[0], pieces[1]))
            vocab.setdefault(pieces[0] + pieces[1], len(vocab))
            pieces = [pieces[0] + pieces[1], *pieces[2:]]
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*before, *after])
    return tokenizer


def _apply(pieces: list[str], merges: list[tuple[str, str]]) -> list[str]:
    """Byte-pair merging by rank."""
    rank = {pair: index for index, pair in enumerate(merges)}
    while True:
        pairs = [(rank.get(pair, len(merges)), i) for i, pair in enumerate(itertools.pairwise(pieces))]
        best, i = min(pairs, default=(len(merges), 0))
        if best == len(merges):
            return pieces
        pieces = [*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :]]
