"""The loops that an output counts by are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from walkgraph.ids import RunId
from walkgraph.service.openai.counting import is_cut, loops_of, reasons, text_tokens, tokens
from walkgraph.service.openai.serving import Output
from walkgraph.wire import messages as m

ANSWER = m.LoopEnd(walk="decode", loop="answer", iterations=7, reason="stop")
FRAMES = m.LoopEnd(walk="speak", loop="frames", iterations=20, reason="bound")
TURNS = m.LoopEnd(walk="", loop="turns", iterations=3, reason="bound")
END = m.Finished(run=RunId("r"), loops=(ANSWER, FRAMES))
TEXT = Output("text", "text", True, frozenset({("decode", "answer")}))
THOUGHT = Output("thought", "text", True, frozenset({("decode", "answer"), ("think", "tokens")}))
SOUND = Output("sound", "audio", False, frozenset())
BOUNDED = Output("sound", "audio", True, frozenset({("speak", "frames")}))
PICTURE = Output("image", "image", False, frozenset())
REPLY = Output("reply", "text", False, frozenset(), frozenset({"turns"}))
SAID = Output("said", "audio", False, frozenset(), frozenset({"turns"}))


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


def test_an_output_of_a_loop_of_steps_ends_with_it_and_its_passes_are_no_tokens() -> None:
    end = structs.replace(END, loops=(ANSWER, FRAMES, TURNS))
    written = replace(TEXT, around=frozenset({"turns"}))
    assert loops_of(end, REPLY) == [TURNS]
    assert reasons(end, written, REPLY) == {"text": "bound", "reply": "bound"}
    assert reasons(end, TEXT, PICTURE) == {"text": "stop"}
    assert [text_tokens(end, one, 5, 0) for one in (written, REPLY)] == [7, 5]


def test_sound_of_a_loop_of_steps_counts_by_all_loops_in_walks() -> None:
    end = structs.replace(END, loops=(ANSWER, structs.replace(FRAMES, reason="stop"), TURNS))
    assert (tokens(loops_of(end, SAID)), tokens(loops_of(end, SOUND))) == (27, 27)
    assert reasons(end, TEXT, SAID) == {"text": "stop", "said": "bound"}
    assert reasons(end, TEXT, SOUND) == {"text": "stop", "sound": "stop"}
