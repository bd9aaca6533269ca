"""Checks whether a service keeps growing: memory of service, conductor and worker while runs start and are cancelled,
and under overload, on the CPU.

    python benchmarks/memory.py [--warm 400] [--cancels 2400] [--waves 8] [--wave 400] [--out FILE] [--check]
    python benchmarks/memory.py --plateau [--steps 16] [--seconds 12] --out FILE

The script starts a service with the plain command in its own home, with the studio and the starter graph. 16 concurrent
clients start runs of `text_to_image` and cancel them at different moments: at once, after they are accepted, and some
after their first output. A wave starts more runs together than the deployment's queue accepts; refused runs are
counted, the others cancelled.

    after     runs begun since the start; resident memory of each process then, MiB
    slope     KiB that a process grew by for each run, fitted over the second half of a phase. What is kept by design
              (200 runs that can be followed, and their traces) fills up before; but for the ring of telemetry's events,
              32 MiB or 100,000 of them, which takes some ten thousand runs. So runs are also cancelled with telemetry
              off
    plateau   instead of all that: a task of nothing, asked for over 32 connections in steps of so many seconds, without
              the studio: hundreds of thousands of runs, until everything that is kept is full, and on
"""

import argparse
import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import rest
from _common import ROOT, Row, fitted, show, write
from _service import Service, conductor_and_worker, home, is_ready, service, when

from walkgraph.client import Client, ClientError, read_address
from walkgraph.settings import Settings

RESULTS = ROOT / "benchmarks" / "results" / "memory.json"
CLIENTS = 16
LONG = 24
"""One of this many runs is cancelled after its first output, the others at once or when they are accepted."""
SAMPLES = 12
"""Number of samples in a phase."""
BODY = {"inputs": {"prompt": "a red circle left of a blue square"}, "params": {"steps": 6}}


def main() -> None:
    given = options()
    if given.plateau:
        plateau(given)
        return
    with home() as folder, service(folder) as server:
        here = Here(folder, server)
        here.cancel(given.warm)
        cancels = here.phase(lambda: here.cancel(given.cancels // SAMPLES), SAMPLES)
        show(f"cancels: {given.cancels} runs, each cancelled", cancels)
        waves = here.phase(lambda: here.flood(given.wave), given.waves)
        show(f"overload: waves of {given.wave} runs at once", waves)
        here.untold()
        quiet = here.phase(lambda: here.cancel(given.cancels // SAMPLES), SAMPLES // 2)
        show("cancels, with telemetry off: the ring of events fills no more", quiet)
        phases = {"cancels": cancels, "overload": waves, "quiet": quiet}
        rows = [{"phase": name, **here.slopes(found)} for name, found in phases.items()]
        show("slope, KiB a run", rows)
    write(None if given.check else given.out, "cpu", {**phases, "slope": rows})


def plateau(given: argparse.Namespace) -> None:
    with home() as folder, service(folder, starter=False) as server:
        server.client.deploy(rest.GRAPH, None, rest.NAME)
        when(server.client, rest.NAME, is_ready)
        here, load = Here(folder, server), rest.Here(folder, server.client.url)
        rows = here.phase(lambda: here.asked(load, given.seconds), given.steps)
        show("plateau: a task of nothing", rows)
        slope = here.slopes(rows)
        show("slope, KiB a run", [slope])
    write(None if given.check else given.out, "cpu", {"plateau": rows, "slope": slope})


def options() -> argparse.Namespace:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--warm", type=int, default=400)
    arguments.add_argument("--cancels", type=int, default=2400)
    arguments.add_argument("--waves", type=int, default=8)
    arguments.add_argument("--wave", type=int, default=400)
    arguments.add_argument("--plateau", action="store_true", help="run an empty task for a long time")
    arguments.add_argument("--steps", type=int, default=16, help="steps of the plateau")
    arguments.add_argument("--seconds", type=float, default=12.0, help="seconds per step")
    arguments.add_argument("--out", type=Path, default=RESULTS)
    arguments.add_argument("--check", action="store_true", help="run the smallest sizes and write nothing")
    given = arguments.parse_args()
    if given.check:
        given.warm, given.cancels, given.waves, given.wave = 4, SAMPLES, 2, 8
    return given


class Here:
    """The service of this benchmark and its processes."""

    def __init__(self, folder: Path, server: Service) -> None:
        address = read_address(Settings(home=folder))
        assert address is not None
        conductor, worker = conductor_and_worker(address.pid)
        self._processes = {"service": address.pid, "conductor": conductor, "worker": worker}
        self._settings = Settings(home=folder)
        self._begun = self._refused = 0

    def phase(self, step: Any, count: int) -> list[Row]:
        """The resources after each step."""
        rows = [self._row()]
        for _ in range(count):
            step()
            rows.append(self._row())
        return rows

    def cancel(self, count: int) -> None:
        """Begin so many runs and end each, at different moments."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self._cancelled, range(count)))
        self._begun += count

    def flood(self, count: int) -> None:
        """Begin all of them before the first is ended."""
        with ThreadPoolExecutor(CLIENTS) as pool, Client.local(self._settings) as client:
            begun = [run for run in pool.map(lambda _: self._tried(client), range(count)) if run is not None]
            list(pool.map(partial(_cancel, client), begun))
            for run in begun:
                _ended(client, run)
        self._begun += count
        self._refused += count - len(begun)

    def untold(self) -> None:
        """Telemetry tells nothing from now on."""
        with Client.local(self._settings) as client:
            client.set_level("shapes", "off")

    def asked(self, load: rest.Here, seconds: float) -> None:
        self._begun += len(load.load("pass", {}, 2 * CLIENTS, seconds).times)

    def slopes(self, rows: list[Row]) -> Row:
        late = rows[len(rows) // 2 :]
        return {
            name: 1024 * fitted([(float(row["after"]), float(row[f"{name} MiB"])) for row in late])[1]
            for name in self._processes
        }

    def _cancelled(self, number: int) -> None:
        with Client.local(self._settings) as client:
            run = client.start_run("shapes", "text_to_image", BODY)["id"]
            for event in client.follow_run(run) if number % 2 else ():
                if number % LONG != 1 or event.name == "output":
                    break
            _cancel(client, run)
            _ended(client, run)

    def _tried(self, client: Client) -> str | None:
        try:
            return client.start_run("shapes", "text_to_image", BODY)["id"]
        except ClientError:
            return None

    def _row(self) -> Row:
        row: Row = {"after": self._begun, "refused": self._refused}
        return row | {f"{name} MiB": _resident(pid) for name, pid in self._processes.items()}


def _cancel(client: Client, run: str) -> None:
    with contextlib.suppress(ClientError):
        client.cancel(run)


def _ended(client: Client, run: str) -> None:
    # One that is over since long can't be followed any more.
    with contextlib.suppress(ClientError):
        for _ in client.follow_run(run):
            pass


def _resident(pid: int) -> float:
    """MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
