"""Make the starter's tokenizer: bytes, and one token for every word of the instructions and every number of a state.

python -m walkgraph.starters.reach.tokens [FILE]
"""

import sys
from pathlib import Path

from tokenizers import Tokenizer

from walkgraph.models.reach.scene import COLOURS
from walkgraph.models.reach.words import NOUNS, VERBS
from walkgraph.starters.words import word_tokenizer

FILE = Path(__file__).with_name("tokenizer.json")
SPECIALS = ("<pad>", "<eos>", "<bos>", "<unk>")
"""The first ids, as in the published vocabulary."""
BOS = 2
LEVELS = 256
"""Count of numbers of a digitized state."""
_SAID = dict.fromkeys(" ".join(("task state action please now the", *VERBS, *NOUNS, *COLOURS)).split())
WORDS = (*_SAID, *map(str, range(LEVELS)))
VOCAB = 896


def make() -> Tokenizer:
    return word_tokenizer(WORDS, before=SPECIALS)


if __name__ == "__main__":
    make().save(sys.argv[1] if len(sys.argv) > 1 else str(FILE))
