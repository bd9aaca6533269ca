"""Counts the tokens of an output and decides if a limit ended it, for OpenAI's answers. Both follow from the loops with
an `until` that the output leaves from: those in its Walk (`serving.Output.loops`), and those of steps (`around`).
"""

from collections.abc import Collection, Sequence

from walkgraph.placement.tables import BOUND, STOP
from walkgraph.service.openai.serving import Output
from walkgraph.wire import messages as m


def loops_of(end: m.Finished, *outputs: Output | None) -> list[m.LoopEnd]:
    """The ended loops that these outputs leave from, each once. Audio that leaves from no loop in its Walk is made from
    everything that the run generated, so all loops in Walks count."""
    wanted = [output for output in outputs if output is not None]
    names = {(walk, loop) for output in wanted for walk, loop in (*output.loops, *(("", one) for one in output.around))}
    if any(output.modality == "audio" and not output.loops for output in wanted):
        names |= {(one.walk, one.loop) for one in end.loops if one.walk}
    return [one for one in end.loops if (one.walk, one.loop) in names]


def tokens(loops: Sequence[m.LoopEnd], begun: Collection[tuple[str, str]] = ()) -> int:
    """Tokens that these loops generated; a pass of steps is none. `begun`: the loops whose first token was generated
    before them (`Serving.begun`), which counts too."""
    return sum(one.iterations + ((one.walk, one.loop) in begun) for one in loops if one.walk)


def text_tokens(end: m.Finished, text: Output | None, came: int, outside: int) -> int:
    """Tokens of a generated text: those of its loops, and the one of each text from `outside` any loop, such as the
    first token. A text that leaves from no loop has as many as pieces of it `came`."""
    loops = [one for one in loops_of(end, text) if one.walk]
    return tokens(loops) + outside if loops else came


def reasons(end: m.Finished, *outputs: Output | None) -> dict[str, str]:
    """Output -> why it ended. One that leaves from no loop has its reason from the loops that no other leaves from, or
    from all; if there are none, it is left out."""
    asked = [output for output in outputs if output is not None]
    found: dict[str, str] = {}
    for output in asked:
        mine, others = loops_of(end, output), loops_of(end, *(one for one in asked if one.loops))
        own = mine if output.loops else [one for one in mine if one not in others or not one.walk] or mine
        if own:
            found[output.name] = _reason(own)
    return found


def _reason(loops: Sequence[m.LoopEnd]) -> str:
    """The reason that a component gives, else that a limit was reached, else `stop`."""
    found = {one.reason for one in loops}
    return min(found - {STOP, BOUND}, default=BOUND if BOUND in found else STOP)


def is_cut(loops: Sequence[m.LoopEnd]) -> bool:
    """True if one of them did not end in the usual way: a limit ended it, or a flag that its component declares."""
    return not all(one.reason == STOP for one in loops)
