"""Runs that come to an approval: their ranks free them, and the service gets what is kept of them.

all ranks have ended the leg ──> Waits ──> service;  Cancel ──> ranks
"""

from walkgraph.conductor.runs.records import RunRecord
from walkgraph.placement.expansion.approving import Approval
from walkgraph.placement.tables import Binding, FromInput, FromLiteral
from walkgraph.wire import messages as m


def waits(run: RunRecord, end: m.Finished) -> m.Waits | None:
    """The message that a run waits for a person; None if it doesn't. `end`: its end without an approval."""
    legs = run.request.legs
    if legs is None or legs.approval is None:
        return None
    approval = legs.approval
    before = run.submit.resumed.kept if run.submit.resumed is not None else {}
    wanted = ((one.name, run.kept.get(one.name, before.get(one.otherwise))) for one in legs.keep)
    kept = {name: value for name, value in wanted if value is not None}
    return m.Waits(
        run=run.id,
        approval=_asked(run, approval, kept),
        rest=m.Resumption(answers=tuple(legs.answers), kept=kept, texts=dict(legs.texts)),
        end=end,
    )


def _asked(run: RunRecord, approval: Approval, kept: dict[str, m.Value]) -> m.Approval:
    given = run.request.given | kept

    def value(binding: Binding | None) -> m.Value:
        match binding:
            case FromInput(name=name):
                return given.get(name, m.Absent())
            case FromLiteral(value=literal):
                return m.Small(value=literal)
            case _:
                return m.Absent()

    shown = run.request.legs.shown(approval) if run.request.legs is not None else []
    return m.Approval(
        number=approval.number,
        label=approval.step.label,
        within=approval.step.within,
        goes_on=approval.step.as_ is not None,
        shown=tuple(m.ShownValue(name=name, value=value(binding)) for name, binding in shown),
    )
