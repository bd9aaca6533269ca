"""Which loops an output counts by."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from walkgraph.ids import RunId
from walkgraph.service.openai.counting import is_cut, loops_of, reasons, tokens
from walkgraph.service.openai.serving import Output
from walkgraph.wire import messages as m

ANSWER = m.LoopEnd(walk="decode", loop="answer", iterations=7, reason="stop")
FRAMES = m.LoopEnd(walk="speak", loop="frames", iterations=20, reason="bound")
END = m.Finished(run=RunId("r"), loops=(ANSWER, FRAMES))
TEXT = Output("text", "text", True, frozenset({("decode", "answer")}))
THOUGHT = Output("thought", "text", True, frozenset({("decode", "answer"), ("think", "tokens")}))
SOUND = Output("sound", "audio", False, frozenset())
BOUNDED = Output("sound", "audio", True, frozenset({("speak", "frames")}))
PICTURE = Output("image", "image", False, frozenset())


@pytest.mark.parametrize(
    ("outputs", "loops", "count", "cut"),
    [
        ((TEXT,), [ANSWER], 7, False),
        ((TEXT, THOUGHT), [ANSWER], 7, False),
        ((SOUND,), [ANSWER, FRAMES], 27, True),
        ((TEXT, SOUND), [ANSWER, FRAMES], 27, True),
        ((BOUNDED,), [FRAMES], 20, True),
        ((PICTURE,), [], 0, False),
        ((None,), [], 0, False),
        ((), [], 0, False),
    ],
)
def test_outputs_count_by_the_loops_that_they_leave_from(outputs: Any, loops: Any, count: int, cut: bool) -> None:
    found = loops_of(END, *outputs)
    assert (found, tokens(found), is_cut(found)) == (loops, count, cut)


def test_a_token_from_before_its_loop_counts_too() -> None:
    begun = frozenset({("decode", "answer"), ("decode", "tokens")})
    assert [tokens(loops, begun) for loops in ([ANSWER], [ANSWER, FRAMES], [FRAMES], [])] == [8, 28, 20, 0]


@pytest.mark.parametrize(
    ("answer", "frames", "output", "told"),
    [
        ("stop", "derailed", SOUND, {"text": "stop", "sound": "derailed"}),
        ("stop", "derailed", BOUNDED, {"text": "stop", "sound": "derailed"}),
        ("bound", "stop", SOUND, {"text": "bound", "sound": "stop"}),
        ("bound", "stop", None, {"text": "bound"}),
        ("stop", "stop", PICTURE, {"text": "stop"}),
    ],
)
def test_each_output_ends_for_the_reason_of_its_own_loops(answer: str, frames: str, output: Any, told: Any) -> None:
    loops = (structs.replace(ANSWER, reason=answer), structs.replace(FRAMES, reason=frames))
    assert reasons(structs.replace(END, loops=loops), TEXT, output) == told


def test_sound_that_leaves_from_the_only_loop_ends_with_it() -> None:
    """A component's reason comes first, then a limit."""
    assert reasons(structs.replace(END, loops=(FRAMES,)), SOUND) == {"sound": "bound"}
    both = (FRAMES, structs.replace(ANSWER, reason="derailed"))
    assert reasons(structs.replace(END, loops=both), SOUND) == {"sound": "derailed"}
