"""Make the starter's tokenizer, byte-level BPE in which every word of the grammar is one token, and the list of words.

    python -m walkgraph.starters.shapes.tokens [FILE]

Any other text still has tokens (its bytes); capitals are lowered.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer

from walkgraph import starters
from walkgraph.starters.shapes.scenes import BACKGROUNDS, COLOURS, PLACES, SHAPES, SIZES
from walkgraph.starters.words import word_tokenizer

FILE = Path(__file__).with_name("tokenizer.json")
SPECIALS = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>")
"""bos, eos, begin and end of an image, named as in the published tokenizer."""
_PLAIN = (
    "a an the and at in on of to nothing background left right above below top bottom center "
    "draw show picture make change turn move put remove delete add"
).split()
WORDS = tuple(dict.fromkeys([*_PLAIN, *SHAPES, *COLOURS, *SIZES, *BACKGROUNDS, *" ".join(PLACES).split()]))


def make() -> Tokenizer:
    return word_tokenizer(WORDS, after=SPECIALS)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    make().save(str(path))
    path.with_name(starters.WORDS).write_text(json.dumps(WORDS, indent=0) + "\n", "utf-8")
