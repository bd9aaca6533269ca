"""The client's record of one run of a simulated world."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from walkgraph.errors import ErrorInfo
from walkgraph.ids import RunId
from walkgraph.simulation.scenarios import ScenarioRequest
from walkgraph.wire import messages as m


@dataclass(slots=True)
class AskedRun:
    """The client's record of one run."""

    id: RunId
    request: ScenarioRequest
    at: float
    deadline: float | None
    accepted: bool = False
    rejected: ErrorInfo | None = None
    finished: m.Finished | None = None
    finished_at: float = 0.0
    twice: bool = False
    aborted: bool = False
    wrong: bool = False
    """It names an unknown task."""
    session: str | None = None
    since: float = 0.0
    """Time at which the first run of its session was submitted."""
    follows: bool = False
    """It reads states that earlier runs of its session left."""
    submit: m.Submit | None = None
    """The request, or its part behind the latest approval."""
    waits: bool = False
    """It waits for a person."""
    asked_for: int = -1
    """Number of the latest approval."""
    expired: bool = False
    """An approval has expired."""
    changes: int = 0
    """The changes of the graph before it was requested."""
    changed: bool = False
    """The graph was changed before it ended."""
    before: dict[str, int] = field(default_factory=dict[str, int])
    """Output -> the number of its values before the latest approval."""
    loops: list[m.LoopEnd] = field(default_factory=list[m.LoopEnd])
    """As its parts tell them."""
    paused: m.Paused | None = None
    was_paused: bool = False
    outputs: dict[str, list[Any]] = field(default_factory=lambda: defaultdict[str, list[Any]](list))

    @property
    def over(self) -> bool:
        return self.finished is not None or self.rejected is not None
