"""Which loops an output counts by."""

from __future__ import annotations

from typing import Any

import pytest

from walkgraph.ids import RunId
from walkgraph.service.openai.counting import is_cut, loops_of, tokens
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
