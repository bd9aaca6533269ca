"""The instructions of the arm's world, and the target that an instruction names.

instruction = ["please"] verb object ["now"]
verb        = "reach" | "touch" | "go to" | "move to" | "point at" | "find"
object      = ["the"] colour [noun]
noun        = "one" | "ball" | "target" | "dot" | "circle"
colour      = "red" | "green" | "blue" | "yellow" | "purple" | "orange"
"""

import itertools
import re

from walkgraph.models.reach.scene import COLOURS

VERBS = ("reach", "touch", "go to", "move to", "point at", "find")
NOUNS = ("one", "ball", "target", "dot", "circle")
_OBJECTS = ("{}", "the {}", *(f"the {{}} {noun}" for noun in NOUNS))
_ENDS = (("", ""), ("please ", ""), ("", " now"), ("please ", " now"))
FORMS = tuple(f"{a}{verb} {thing}{b}" for (a, b), verb, thing in itertools.product(_ENDS, VERBS, _OBJECTS))
"""Every instruction, with `{}` in place of the colour."""


def colour(instruction: str) -> int | None:
    """Index into `COLOURS` of the colour that an instruction names; None if it names none or several."""
    said = {word for word in re.findall(r"[a-z]+", instruction.lower()) if word in COLOURS}
    return COLOURS.index(said.pop()) if len(said) == 1 else None
