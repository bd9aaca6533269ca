"""Choices in the bodies of Walks, and the merges that join their branches."""

import re
from collections.abc import Iterable, Sequence

from walkgraph.graph.checks.context import Context
from walkgraph.graph.checks.edges import check_source, check_use
from walkgraph.graph.checks.types import choosable
from walkgraph.graph.checks.walks import walk_path
from walkgraph.graph.ports import PortType, accepts
from walkgraph.graph.reading.wellformed import Path
from walkgraph.graph.structure import ChoiceAt, WalkStructure, apart, end

_WHOLE = re.compile(r"^(0|-?[1-9][0-9]*)$")


def check_choices(context: Context) -> None:
    for name, facts in context.facts.items():
        for choice in facts.choices:
            _choice(context, name, facts, choice)
        for merge, sources in facts.walk.merges.items():
            _merge(context, name, facts, merge, sources)
        _streams(context, name, facts)


# ── choices ─────────────────────────────────────────────────────────────────────────────────────


def _choice(context: Context, walk: str, facts: WalkStructure, choice: ChoiceAt) -> None:
    path = walk_path(walk, choice.entry.pointer)
    if choice.routes and choice.routes[0].source.kind in ("loop", "stream"):
        advice = "write a `when`" if choice.routes[0].source.kind == "loop" else "pass it through a use first"
        message = f"a choice can't read `{choice.item.choose}`; name `use.port`, `@in.x` or `@merge.x`, or {advice}"
        context.add("bad_choice", (*path, "choose"), message)
        return
    for route in choice.routes:
        known = check_source(context, walk, facts, route, (*path, "choose"))
        found = context.source_type(walk, route) if known else None
        if found is not None:
            cases_of(context, path, choice.item.choose, found, choice.item.cases, bool(choice.item.otherwise))


def cases_of(context: Context, path: Path, source: str, found: PortType, cases: Iterable[str], otherwise: bool) -> None:
    """Check the type of a choice's value, and that the value can take each case."""
    kind = choosable(found)
    if kind is None:
        message = f"`{source}` gives `{found}`, and a choice takes a flag, one whole number or a text"
        context.add(
            "bad_choice_type", (*path, "choose"), f"{message}; compare or describe it in a use, and choose by that"
        )
        return
    for case in cases:
        fault = _never(kind, case)
        if fault:
            context.add("unreachable_case", (*path, "cases", case), f"`{source}` is never `{case[:80]}`: {fault}")
    if kind == "flag" and otherwise and {"true", "false"} <= set(cases):
        message = "a flag takes `true` or `false`, which are both here; remove `otherwise`"
        context.add("unreachable_case", (*path, "otherwise"), message, "warning")


def _never(kind: str, case: str) -> str:
    """The reason that a value of this kind never takes a case; empty if it may."""
    if kind == "flag" and case not in ("true", "false"):
        return "it is a flag; name the case `true` or `false`"
    if kind == "integer" and not _WHOLE.match(case):
        return "it is a whole number; write it in decimal, like `-3`"
    return ""


def _streams(context: Context, walk: str, facts: WalkStructure) -> None:
    for route in facts.routes:
        target = route.target.entry
        if route.source.kind == "stream" and target is not None and target.cases:
            message = f"`{target.name}` reads a stream in a branch, and its items would wait where it isn't taken"
            path = walk_path(walk, f"{route.pointer}/to")
            context.add("stream_in_choice", path, f"{message}; read the stream before the choice")


# ── merges ──────────────────────────────────────────────────────────────────────────────────────


def _merge(context: Context, walk: str, facts: WalkStructure, name: str, sources: Sequence[str]) -> None:
    path = ("walks", walk, "merges", name)
    first: PortType | None = None
    for i, reference in enumerate(sources):
        where = (*path, str(i))
        source = end(reference, facts.uses, target=False)
        if source.kind != "use":
            context.add(
                "bad_merge", where, f"`{reference}` is in no branch; name ports of uses in branches of a choice"
            )
            continue
        if not check_use(context, walk, facts, source, where, "output") or source.entry is None:
            continue
        for other in sources[:i]:
            entry = end(other, facts.uses, target=False).entry
            if entry is not None and apart(entry.cases, source.entry.cases) is None:
                message = f"`{other}` and `{reference}` may both have a value"
                advice = "merge ports of uses in different branches of one choice"
                context.add("not_exclusive", where, f"{message}; {advice}")
                break
        port = context.output(source)
        if port is None:
            continue
        first = first or port.type
        fault = accepts(first, port.type)
        if fault:
            message = f"`{reference}` gives `{port.type}`, and the merge has `{first}`: {fault}"
            context.add("type_mismatch", where, f"{message}; merge ports of one type")
