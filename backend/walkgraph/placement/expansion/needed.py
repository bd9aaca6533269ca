"""The steps that a request needs: those that give a wanted output, change a session's state or are shown to a person,
and all they need."""

from collections.abc import Iterator, Sequence

from walkgraph.placement.expansion.loop_ends import PassEnd
from walkgraph.placement.expansion.state_machine import Expansion
from walkgraph.placement.moves import ChoiceDraft, Draft, Key, sources_of
from walkgraph.placement.tables import Plan


def needed(plan: Plan, expansion: Expansion, wanted: Sequence[str]) -> list[int]:
    """Drafts that give a wanted output or change a session's state, and everything they need; in order. A step that is
    needed in one pass of a loop is needed in all: which pass is the last may not be known before."""
    drafts = expansion.drafts
    fed = {stream for draft in drafts for stream in draft.facts.streams_out}
    # A consumer whose streams have no producer among the steps would wait forever.
    able = [not d.facts.streams_in or not d.facts.streams_in.isdisjoint(fed) for d in drafts]
    session = {state.index for state in plan.states if state.scope == "session"}
    queue = [
        i
        for i, draft in enumerate(drafts)
        if able[i] and (not draft.facts.outputs.isdisjoint(wanted) or not draft.facts.writes.isdisjoint(session))
    ]
    queue += _shown(expansion)
    live = set(queue)
    needs = _Needs(drafts, expansion.choices, expansion.loops.passes)
    passes: dict[Key, list[int]] = {}
    for i, seen in enumerate(drafts):
        passes.setdefault(seen.key, []).append(i)
    while queue:
        index = queue.pop()
        for i in (*needs.of(index), *passes.pop(drafts[index].key, ())):
            if i not in live and able[i]:
                live.add(i)
                queue.append(i)
    return sorted(live)


def _shown(expansion: Expansion) -> Iterator[int]:
    """The drafts that give what a person is shown, or that decide whether one is asked."""
    for approval in expansion.approvals.seen:
        decided = (expansion.choices[choice].source for choice in (*(c for c, _ in approval.cases), *approval.ends))
        for binding in (*(found for _, found in approval.shown if found is not None), *decided):
            yield from (source.step for source in sources_of(binding))


class _Needs:
    """The drafts that a draft depends on. Each writer of a state or stream is reported once."""

    def __init__(self, drafts: list[Draft], choices: list[ChoiceDraft], pass_ends: Sequence[PassEnd]) -> None:
        self.drafts, self.choices = drafts, choices
        self.judged: dict[int, list[int]] = {}
        """Draft -> the choices that end the passes around it."""
        for drafts_of_pass, choice in pass_ends:
            for draft in drafts_of_pass:
                self.judged.setdefault(draft, []).append(choice)
        self.writers: dict[int, list[int]] = {}
        """State -> drafts that may change it and have not been reported yet, the first one last."""
        self.producers: dict[int, list[int]] = {}
        for i in reversed(range(len(drafts))):
            for state in drafts[i].facts.writes:
                self.writers.setdefault(state, []).append(i)
            for stream in drafts[i].facts.streams_out:
                self.producers.setdefault(stream, []).append(i)

    def of(self, index: int) -> list[int]:
        draft = self.drafts[index]
        decided = [*(choice for choice, _ in draft.cases), *draft.ends, *self.judged.get(index, ())]
        bindings = [*draft.bindings.values(), *(self.choices[choice].source for choice in decided)]
        needed = [source.step for binding in bindings for source in sources_of(binding)]
        for state in draft.facts.homes:
            writers = self.writers.get(state, [])
            while writers and writers[-1] < index:
                needed.append(writers.pop())
        for stream in draft.facts.streams_in:
            needed.extend(self.producers.pop(stream, ()))
        return needed
