"""Make the starter's tokenizer and the list of its words: bytes, and one token for every word of the instructions and
every number of a state.

python -m walkgraph.starters.reach.tokens [FILE]
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

from walkgraph import starters
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
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    make().save(str(path))
    path.with_name(starters.WORDS).write_text(json.dumps(WORDS, indent=0) + "\n", "utf-8")
