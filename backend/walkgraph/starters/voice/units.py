"""The units of the speaker, how espeak-ng is made to say them, and the list of the words that it knows.

    python -m walkgraph.starters.voice.units [FOLDER]

They are the words of the starter `shapes`, the letters that other words are spelled by, and digits.
"""

import json
import string
import sys
from pathlib import Path

from walkgraph import starters
from walkgraph.models.voice.config import PAUSE
from walkgraph.starters.shapes.tokens import WORDS as SHAPES

_LETTERS = (
    "ay bee see dee ee eff gee aitch eye jay kay ell em en oh pee cue are ess tee you vee double-you ex why zee".split()
)
_DIGITS = "zero one two three four five six seven eight nine".split()
SAID: dict[str, str] = {
    **{word: word for word in SHAPES},
    **dict(zip(string.ascii_uppercase, _LETTERS, strict=True)),
    **dict(zip(string.digits, _DIGITS, strict=True)),
}
"""Unit -> the spelling that espeak-ng reads."""
UNITS = (*SAID, PAUSE)
RECORDED = tuple(unit for unit in SAID for _ in range(2))
"""The unit of each recording: one before another word, one before a pause."""
RECORDINGS = "recordings.safetensors"
"""The recordings' spectra, for the judge."""
WORDS = tuple(dict.fromkeys([*SHAPES, *string.ascii_lowercase]))
"""Words that are not spelled; a letter alone is one."""


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    (folder / starters.WORDS).write_text(json.dumps(WORDS, indent=0) + "\n", "utf-8")
