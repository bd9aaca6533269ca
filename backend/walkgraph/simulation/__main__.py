"""`python -m walkgraph.simulation --schedules N --seed S`: run worlds and print a report. Exits with 1 after faults.

Faults are printed as they are found, and a line every 10,000 schedules.
"""

import argparse
import logging
import os
import sys
import time

from walkgraph.simulation.schedules import (
    SimulationReport,
    known_chained,
    known_scenarios,
    known_talkers,
    run_schedules,
)

PROGRESS = 10_000
"""Schedules between two lines of progress."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m walkgraph.simulation", description="Run simulated deployments.")
    parser.add_argument("--schedules", type=int, default=10_000, help="number of worlds to run, one per seed")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)), help="number of processes")
    asked = parser.parse_args()
    logging.getLogger("walkgraph").setLevel(logging.ERROR)
    known_scenarios()  # not part of the time that is told
    known_talkers()
    known_chained()
    began, told = time.monotonic(), 0

    def tell(report: SimulationReport) -> None:
        nonlocal told
        for _, what in report.faults[told:]:
            sys.stderr.write(f"{what}\n")
        told = len(report.faults)
        if report.worlds % PROGRESS == 0 and report.worlds < asked.schedules:
            sys.stderr.write(f"{report.worlds} schedules, {told} faults, {time.monotonic() - began:.0f} s\n")

    report = run_schedules(asked.schedules, asked.seed, max(1, asked.processes), tell)
    sys.stdout.write(report.text(time.monotonic() - began) + "\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
