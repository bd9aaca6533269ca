"""Makes the starter's tokenizer: byte-level BPE in which every word of the grammar is one token.

    python -m walkgraph.starters.shapes.tokens [FILE]

Any other text still has tokens (its bytes); capitals are lowered.
"""

import itertools
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from walkgraph.starters.shapes.scenes import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES

FILE = Path(__file__).with_name("tokenizer.json")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
"""bos, eos, begin and end of image: the names of the published tokenizer."""
_PLAIN = (
    "a an the and at in on of to nothing background left right above below top bottom center "
    "draw show picture make change turn move put remove delete add"
).split()
WORDS = tuple(dict.fromkeys([*_PLAIN, *SHAPES, *COLOURS, *SIZES, *BACKGROUNDS, *" ".join(PLACES).split()]))
_SPACE = "Ġ"


def make() -> Tokenizer:
    """Merges are laid word by word, each upon what the earlier ones leave of the word: earlier words stay whole."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: index for index, piece in enumerate([*alphabet, *SPECIALS])}
    merges: list[tuple[str, str]] = []
    for word in [*WORDS, *(_SPACE + word for word in WORDS)]:
        pieces = _apply(list(word), merges)
        while len(pieces) > 1:
            merges.append((pieces[0], pieces[1]))
            vocab.setdefault(pieces[0] + pieces[1], len(vocab))
            pieces = [pieces[0] + pieces[1], *pieces[2:]]
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=merges))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIALS))
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


if __name__ == "__main__":
    make().save(sys.argv[1] if len(sys.argv) > 1 else str(FILE))
