"""`python -m walkgraph.simulation --schedules N --seed S`: run worlds, print a report; 1 if any was at fault."""

import argparse
import os
import sys
import time

from walkgraph.simulation.schedules import known_scenarios, run_schedules


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m walkgraph.simulation", description="Run simulated deployments.")
    parser.add_argument("--schedules", type=int, default=10_000, help="how many worlds, one a seed")
    parser.add_argument("--seed", type=int, default=0, help="the first of their seeds")
    parser.add_argument(
        "--processes", type=int, default=len(os.sched_getaffinity(0)), help="that run them side by side"
    )
    asked = parser.parse_args()
    known_scenarios()  # before the processes are forked: they share them
    began = time.monotonic()
    report = run_schedules(asked.schedules, asked.seed, max(1, asked.processes))
    sys.stdout.write(report.text(time.monotonic() - began) + "\n")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
