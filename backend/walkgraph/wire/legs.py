"""Messages about the legs of a run: steps that its ranks get once all of them have ended those before; and about runs
that wait for a person between two legs.

    rank ── LegResult, LegDone ──> conductor ── Extend ──> ranks
                                             ── Waits ──> service      at an approval: the run ends on its ranks
    service ── Submit(resumed=Resumption) ──> conductor                the rest of it, as a run with a name of its own
"""

import struct
from math import prod

import msgspec

from walkgraph.ids import Rank, RunId
from walkgraph.placement.moves import as_text
from walkgraph.placement.tables import Leg, LegAnswer
from walkgraph.wire.values import InlineTensor, Small, Value
from walkgraph.wire.watching import Message


class Extend(Message, frozen=True, tag="extend"):
    """The next leg of a run, whose ranks have all ended the one before."""

    run: RunId
    leg: Leg


class LegDone(Message, frozen=True, tag="leg_done"):
    """All steps of a leg are done here, and the verdict that decides on the next leg is known."""

    rank: Rank
    run: RunId
    verdict: int = -1
    """The branch of the leg's choice `by`; -1 if it has none."""


class LegResult(Message, frozen=True, tag="leg_result"):
    """A result that is kept while a person is asked. `LegDone` follows."""

    rank: Rank
    run: RunId
    name: str
    """That of the `KeptResult`."""
    value: Value


class ShownValue(Message, frozen=True):
    name: str
    """`walk.result`"""
    value: Value


class Resumption(Message, frozen=True):
    """The place of a run that goes on behind an approval."""

    answers: tuple[LegAnswer, ...]
    """The answers to its legs so far; the last is the person's decision."""
    kept: dict[str, Value] = msgspec.field(default_factory=dict[str, Value])
    """Results of steps before that place, by the names of their inputs."""
    texts: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Earlier kept results by which the steps were decided, as cases name them."""


class Approval(Message, frozen=True):
    """The question that a person is asked."""

    number: int
    """How many approvals came before it in the run."""
    label: str
    within: int
    """Seconds in which the person may answer."""
    goes_on: bool
    """A refused run goes on: later steps read the answer."""
    shown: tuple[ShownValue, ...]


class Asked(Message, frozen=True, tag="asked"):
    """An event of a run: from now on it waits for a person."""

    run: RunId
    approval: Approval
    at: float
    """Seconds since 1970."""
    expires_at: float


class Decided(Message, frozen=True, tag="decided"):
    """An event of a run: the person has answered, and it goes on."""

    run: RunId
    number: int
    """The approval's."""
    approved: bool
    note: str
    at: float


_FORMATS = {
    "float64": "d",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "int32": "i",
    "int16": "h",
    "int8": "b",
    "uint8": "B",
    "bool": "?",
}


def text_of(value: Value) -> str | None:
    """A flag, a number or a text as a case of a choice names it, as ranks do; None for any other value."""
    match value:
        case Small(value=found):
            pass
        case InlineTensor(dtype="bfloat16", data=data) if len(data) == 2:
            found = struct.unpack("<f", b"\0\0" + data)[0]
        case InlineTensor() if prod(value.shape) == 1 and value.dtype in _FORMATS:
            found = struct.unpack(f"<{_FORMATS[value.dtype]}", value.data)[0]
        case _:
            return None
    return as_text(found)
