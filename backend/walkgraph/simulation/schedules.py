"""Runs many worlds, one per seed, and reports their outcomes."""

import gc
import random
import traceback
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache

from walkgraph.placement.succession import same_processes
from walkgraph.simulation.client import Chances
from walkgraph.simulation.kinds.chained import chained
from walkgraph.simulation.kinds.deferring import deferring
from walkgraph.simulation.kinds.moving import moving
from walkgraph.simulation.kinds.replicated import replicated
from walkgraph.simulation.kinds.talkers import talkers
from walkgraph.simulation.page import Page
from walkgraph.simulation.processes import REAL_PARTS, WorldParts
from walkgraph.simulation.scenarios import Scenario, scenarios
from walkgraph.simulation.simulator import Violation
from walkgraph.simulation.world import Outcome, World

BLOCK = 250
"""Seeds that a process runs at a time."""
CROWDED = Chances(most_runs=8, kill=0.05, hang=0.0)
SHARED = CROWDED._replace(shares=True)
CALM = Chances(abort=0.0, deadline=0.0, hold=0.0, pause=0.0, breakpoint=0.0, kill=0.0, hang=0.0, stall=0.0, fail=0.0)
MOODS = (Chances(), Chances(), Chances(), CROWDED, CALM)
"""Disturbances of worlds; most have the default ones."""
CHANGING, OTHERS = 0.2, 4
"""Share of the worlds in which graphs change, and to how many scenarios, as far as they fit its processes."""
MOVING, MOVES = 0.1, 8
"""Share of the worlds in which runs are moved in the queue, and how often."""
TALKING = 0.15
"""Share of the worlds in which one partition speaks what another one thinks."""
SESSIONS = 0.04
"""Share of the worlds with sessions, besides those that are drawn as any other."""
EDITING = 0.3
"""Share of the worlds with chains in which the nodes of a chain are edited, while outputs of calls are kept."""
CHAINING = 0.08
"""Share of the worlds with chains of small nodes."""
CONVERSING = 0.5
"""Share of the worlds with sessions in which graphs change among those with sessions."""
SHARING = 0.04
"""Share of the worlds in which sequences that begin alike share pages, which are short."""
DEFERRING, TOGETHER, ALIKE = 0.06, 0.2, 0.3
"""Share of the worlds with deferred calls; shares of these in which graphs change among them, and in which sequences
that begin alike share pages."""
REPLICATING = 0.06
"""Share of the worlds in which runs go to one of several replicas."""
MIGRATING = 0.06
"""Share of the worlds whose state moves from rank to rank in parts; `ALIKE` of them share pages."""
KEEPING = 0.2
"""Share of the worlds in which outputs of calls are kept."""
YOUNG, BEFORE_OLDER = 5_000, 3
"""Objects made and kept between two collections of garbage, and collections between two that look at older objects
too. A world leaves some thousands: so few are kept that their memory is still in the processor's cache when it is used
again."""
MOST_FAULTS = 20
"""Most faults in a report's text."""


def world(known: Sequence[Scenario], seed: int, parts: WorldParts = REAL_PARTS, *, page: Page | None = None) -> World:
    """The world of a seed: always the same scenario, disturbances and order of messages. `page`: in place of the
    seed's."""
    chance = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    scenario, mood = chance.choice(known), chance.choice(MOODS)
    # Drawn apart: the other seeds keep the worlds that they had before there were talkers.
    apart = random.Random(f"talking {seed}")  # noqa: S311 - no secret
    scenario = apart.choice(known_talkers()) if apart.random() < TALKING else scenario
    chaining = random.Random(f"chaining {seed}")  # noqa: S311 - no secret
    chains = chaining.random() < CHAINING
    scenario = chaining.choice(known_chained()) if chains else scenario
    scenario = chaining.choice(known_sessions()) if not chains and chaining.random() < SESSIONS else scenario
    others = [chance.choice(known) for _ in range(OTHERS)] if chance.random() < CHANGING else []
    fitting = tuple(other for other in others if same_processes(scenario.plan, other.plan))
    moves, keeps = MOVES if chance.random() < MOVING else 0, chance.random() < KEEPING
    if scenario.converses and chaining.random() < CONVERSING:
        fitting = tuple(one for one in known if one.converses and same_processes(scenario.plan, one.plan))
    if chains and chaining.random() < EDITING:
        fitting = tuple(one for one in known_chained() if same_processes(scenario.plan, one.plan))
        keeps = True
    own = Page(fitting, keeps, moves)
    page = own if page is None else page
    mood = mood._replace(most_runs=CROWDED.most_runs) if page.moves else mood
    sharing = random.Random(f"sharing {seed}")  # noqa: S311 - no secret
    if sharing.random() < SHARING:
        scenario, mood, page = sharing.choice(known_paged()), SHARED, page._replace(others=())
    apart = random.Random(f"deferring {seed}")  # noqa: S311 - no secret
    if apart.random() < DEFERRING:
        scenario = apart.choice(known_deferring())
        changes, mood = apart.random() < TOGETHER, SHARED if apart.random() < ALIKE else mood
        alike = [one for one in known_deferring() if one.pages == scenario.pages] if changes else []
        fitting = tuple(one for one in alike if same_processes(scenario.plan, one.plan))
        page = page._replace(others=fitting)
    apart = random.Random(f"replicating {seed}")  # noqa: S311 - no secret
    if apart.random() < REPLICATING:
        scenario, page = apart.choice(known_replicated()), page._replace(others=())
    apart = random.Random(f"migrating {seed}")  # noqa: S311 - no secret
    if apart.random() < MIGRATING:
        scenario, page = apart.choice(known_moving()), page._replace(others=())
        mood = SHARED if apart.random() < ALIKE else mood
    return World(scenario, seed, chances=mood, parts=parts, page=page)


@dataclass
class SimulationReport:
    worlds: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    """Runs by end: `done`, or an error code."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Occurrences by kind."""
    seconds: float = 0.0
    """Simulated seconds."""
    faults: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """(seed, message) of each failed world."""

    def add(self, outcome: Outcome) -> None:
        self.ends += outcome.ends
        self.counts += outcome.counts
        self.seconds += outcome.seconds

    def join(self, other: "SimulationReport") -> None:
        self.worlds += other.worlds
        self.ends += other.ends
        self.counts += other.counts
        self.seconds += other.seconds
        self.faults += other.faults

    def text(self, took: float) -> str:
        """The report as text. `took`: seconds of real time."""
        rate = self.worlds / took if took else 0.0
        lines = [
            f"{self.worlds} schedules in {took:.1f} s, {rate:.0f} a second; {self.seconds:.0f} s of simulated time",
            f"{self.ends.total()} runs ended",
            *_counted(self.ends),
            "what happened",
            *_counted(self.counts),
            f"{len(self.faults)} faults",
            *(f"  {what}" for _, what in self.faults[:MOST_FAULTS]),
        ]
        if self.faults:
            lines.append(f"replay one: python -m walkgraph.simulation --schedules 1 --seed {self.faults[0][0]}")
        return "\n".join(lines)


def _counted(counts: Counter[str]) -> list[str]:
    return [f"{count:>10} {what}" for what, count in counts.most_common()]


@cache
def known_scenarios() -> Sequence[Scenario]:
    return scenarios()


@cache
def known_talkers() -> Sequence[Scenario]:
    return talkers()


@cache
def known_sessions() -> Sequence[Scenario]:
    return [one for one in known_scenarios() if one.converses]


@cache
def known_paged() -> Sequence[Scenario]:
    """Those whose states take pages."""
    return [one for one in known_scenarios() if one.paged]


@cache
def known_chained() -> Sequence[Scenario]:
    return chained()


@cache
def known_deferring() -> Sequence[Scenario]:
    return deferring()


@cache
def known_moving() -> Sequence[Scenario]:
    return moving()


@cache
def known_replicated() -> Sequence[Scenario]:
    return replicated()


def run_seeds(seeds: Iterable[int]) -> SimulationReport:
    """Runs one world per seed. A fault ends only its own world."""
    report, known = SimulationReport(), known_scenarios()
    for seed in seeds:
        report.worlds += 1
        try:
            report.add(world(known, seed).run())
        except Exception as raised:  # noqa: BLE001 (a core's exception is a fault too, reported with its seed)
            report.faults.append((seed, _told(seed, raised)))
    return report


@contextmanager
def rare_collections() -> Generator[None]:
    """Looks for garbage once in a few worlds, and only among what they made: going through all scenarios too takes a
    fifth of the time. Processes that are forked meanwhile do so as well."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, BEFORE_OLDER, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _told(seed: int, raised: Exception) -> str:
    """The message of a failed world with its seed; for errors other than violations, with the line that raised them."""
    if isinstance(raised, Violation):
        return str(raised)
    place = traceback.extract_tb(raised.__traceback__)[-1]
    return f"seed {seed}: {type(raised).__name__}: {raised} ({place.name}, {place.filename}:{place.lineno})"


def run_schedules(
    schedules: int, first: int, processes: int, tell: Callable[[SimulationReport], None] = lambda report: None
) -> SimulationReport:
    """Runs seeds from `first` on in so many processes. `tell` gets the report so far after every block of seeds."""
    report = SimulationReport()
    begins = range(first, first + schedules, BLOCK)
    blocks = [range(begin, min(begin + BLOCK, first + schedules)) for begin in begins]
    kinds = known_talkers, known_chained, known_deferring, known_replicated, known_moving
    for known in (known_scenarios, *kinds):
        known()  # before any of them runs, so that all processes share them
    with rare_collections():
        if processes == 1:
            for block in blocks:
                report.join(run_seeds(block))
                tell(report)
            return report
        with ProcessPoolExecutor(processes) as pool:
            for part in pool.map(run_seeds, blocks):
                report.join(part)
                tell(report)
    return report
