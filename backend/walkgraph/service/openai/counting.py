"""Counts the tokens of an output and decides if a limit ended it, for OpenAI's answers. Both follow from the loops with
an `until` that the output leaves from (`serving.Output.loops`).
"""

from collections.abc import Sequence

from walkgraph.service.openai.serving import Output
from walkgraph.wire import messages as m


def loops_of(end: m.Finished, *outputs: Output | None) -> list[m.LoopEnd]:
    """The ended loops that these outputs leave from, each once. Audio that leaves from none
    itself is made from everything that the run generated, so all loops count."""
    wanted = [output for output in outputs if output is not None]
    if any(output.modality == "audio" and not output.loops for output in wanted):
        return list(end.loops)
    names = frozenset[tuple[str, str]]().union(*(output.loops for output in wanted))
    return [one for one in end.loops if (one.walk, one.loop) in names]


def tokens(loops: Sequence[m.LoopEnd]) -> int:
    return sum(one.iterations for one in loops)


def is_cut(loops: Sequence[m.LoopEnd]) -> bool:
    """True if a limit ended one of them, not its `until`."""
    return not all(one.stopped for one in loops)
