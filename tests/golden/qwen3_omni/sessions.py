"""A spoken session, whose turns are sent one by one, and where its stored answers are.

`make_sessions.py` gives `transformers` the whole conversation for each turn, with the answers that it gave before.
"""

from collections.abc import Sequence
from pathlib import Path

from tests.golden.qwen3_omni import whole

ANSWERS = Path(__file__).parent / "sessions.npz"
ASKED: Sequence[Sequence[whole.Part]] = (
    ["See ", (64, 96), "who?"],
    [12800, "What now?"],
    ["Or ", whole.WIDE],
    ["And now?"],
)
"""The user's turns: a picture, a sound, and a film that reaches beyond the places of what follows it, into the next
turn. The sounds are of one length, as the published code pads those that it gets together. No answer has an id that
stands for media or begins a turn: in a conversation of the published code, it would mean them."""
