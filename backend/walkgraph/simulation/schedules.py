"""Many worlds, one a seed: which scenario a seed has, and a report of what they came to."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from walkgraph.simulation.client import Chances
from walkgraph.simulation.scenarios import Scenario, scenarios
from walkgraph.simulation.world import PARTS, Outcome, Parts, World

BLOCK = 250
"""Seeds that a process takes at a time."""
CROWDED = Chances(most_runs=8, kill=0.05, hang=0.0)
CALM = Chances(abort=0.0, deadline=0.0, hold=0.0, pause=0.0, breakpoint=0.0, kill=0.0, hang=0.0)
MOODS = (Chances(), Chances(), Chances(), CROWDED, CALM)
"""How much worlds are disturbed; most as by default."""
MOST_FAULTS = 20
"""That are told."""


def world(known: Sequence[Scenario], seed: int, parts: Parts = PARTS) -> World:
    """What a seed stands for: the same scenario, disturbances and order of messages whenever it is made."""
    chance = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
    return World(chance.choice(known), seed, chances=chance.choice(MOODS), parts=parts)


@dataclass
class Report:
    """Of some worlds."""

    worlds: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0
    """Simulated."""
    messages: int = 0
    lost: int = 0
    faults: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """Seeds, each with what went wrong."""

    def add(self, outcome: Outcome) -> None:
        self.ends += outcome.ends
        self.seconds += outcome.seconds
        self.messages += outcome.messages
        self.lost += outcome.lost

    def join(self, other: "Report") -> None:
        self.worlds += other.worlds
        self.ends += other.ends
        self.seconds += other.seconds
        self.messages += other.messages
        self.lost += other.lost
        self.faults += other.faults

    def text(self, took: float) -> str:
        rate = self.worlds / took if took else 0.0
        ends = ", ".join(f"{count} {code}" for code, count in sorted(self.ends.items()))
        lines = [
            f"{self.worlds} schedules in {took:.1f} s, {rate:.0f} a second",
            f"{self.ends.total()} runs: {ends}",
            f"{self.messages} messages, {self.lost} processes lost, {self.seconds:.0f} s of simulated time",
            f"{len(self.faults)} faults",
        ]
        lines += [f"  seed {seed}: {what}" for seed, what in self.faults[:MOST_FAULTS]]
        return "\n".join(lines)


_KNOWN: list[Scenario] = []
"""Of this process: made once."""


def known_scenarios() -> Sequence[Scenario]:
    if not _KNOWN:
        _KNOWN.extend(scenarios())
    return _KNOWN


def run_seeds(seeds: Iterable[int]) -> Report:
    """A fault ends its world alone."""
    report, known = Report(), known_scenarios()
    for seed in seeds:
        report.worlds += 1
        try:
            report.add(world(known, seed).run())
        except Exception as raised:  # noqa: BLE001 (what a core raises is a fault like others, told with its seed)
            report.faults.append((seed, f"{type(raised).__name__}: {raised}"))
    return report


def run_schedules(
    schedules: int, first: int, processes: int, tell: Callable[[Report], None] = lambda report: None
) -> Report:
    """`tell` is given what has come so far, after every block of seeds."""
    report = Report()
    ends = range(first, first + schedules, BLOCK)
    blocks = [range(begin, min(begin + BLOCK, first + schedules)) for begin in ends]
    if processes == 1:
        for block in blocks:
            report.join(run_seeds(block))
            tell(report)
        return report
    with ProcessPoolExecutor(processes) as pool:
        for part in pool.map(run_seeds, blocks):
            report.join(part)
            tell(report)
    report.faults.sort()
    return report
