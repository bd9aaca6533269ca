"""The output of `walkgraph plan`, compared as text."""

from pathlib import Path

from tests.support.placing import at, duet, planned
from walkgraph.placement.routes import handed
from walkgraph.placement.show import render

HELD = Path(__file__).with_name("plan_duet.txt")


def drawn() -> str:
    made = planned(
        at(1, "guide", "voice", memory="10GiB"),
        at(0, "llm", walks=("prefill", "draw"), memory="12GiB"),
        at(1, "llm", "say", walks=("decode",)),
        at(2, "mix", "paint"),
        devices=("cuda:0", "cuda:1", "cpu"),
    )
    assert made.plan is not None, made.problems
    return render(made.plan, made.problems, made.copies, handed(duet(), made.plan))


def test_drawing() -> None:
    assert drawn() == HELD.read_text(), "if this is meant, write it anew with `python -m tests.golden.test_plan`"


if __name__ == "__main__":
    HELD.write_text(drawn())
