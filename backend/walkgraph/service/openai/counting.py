"""What OpenAI's answers tell of a run's end: how many tokens an output took, and whether a bound ended it. From the
loops with an `until` that outputs leave from (`serving.Output.loops`).
"""

from collections.abc import Sequence

from walkgraph.service.openai.serving import Output
from walkgraph.wire import messages as m


def loops_of(end: m.Finished, *outputs: Output | None) -> list[m.LoopEnd]:
    """Those that any of these outputs leaves from, each once. Sound leaves from none itself where it is streamed out
    of one: it is made from all that the run wrote."""
    wanted = [output for output in outputs if output is not None]
    if any(output.modality == "audio" and not output.loops for output in wanted):
        return list(end.loops)
    names = frozenset[tuple[str, str]]().union(*(output.loops for output in wanted))
    return [one for one in end.loops if (one.walk, one.loop) in names]


def tokens(loops: Sequence[m.LoopEnd]) -> int:
    return sum(one.iterations for one in loops)


def is_cut(loops: Sequence[m.LoopEnd]) -> bool:
    """Whether a bound ended one of them, and not what it wrote."""
    return not all(one.stopped for one in loops)
