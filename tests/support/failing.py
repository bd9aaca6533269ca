"""Deployments in which one fault point fails, one after the other; their processes are forked.

`python -m tests.support.failing shapes:3:8 streams:5`: eight faults, drawn, in `shapes` with 3 steps, and all faults in
`streams` with 5 items. A line of JSON tells what came of each. In a round a request is answered as without the fault
or ends with a typed error; what the round ends with is answered right; then nothing is held and no file is left open.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple

import msgspec
import zmq

from tests.support.deployment import children, is_gone, shared_memory
from tests.support.failing_cases import CASES, Case
from tests.support.forked import Child, OwnForks, fork
from walkgraph.conductor.core import Conductor
from walkgraph.conductor.itinerary_cache import ItineraryCache
from walkgraph.conductor.loop import ConductorLoop, Connections
from walkgraph.graph import codec as graphs
from walkgraph.ids import RunId
from walkgraph.telemetry import events as t
from walkgraph.telemetry.emit import Off
from walkgraph.wire import codec, sockets
from walkgraph.wire import messages as m
from walkgraph.wire.fault_points import RECORD, Fault, fault_points
from walkgraph.wire.spec import SERVICE_SOCKET, WORKERS_SOCKET, DeploymentSpec, Limits, read_spec, write_spec
from walkgraph.worker.observe import work_telemetry

LONGEST = 60.0
"""Seconds for what takes one or two on an idle machine."""
TYPED = {"worker_lost", "out_of_memory", "node_error", "stalled", "overloaded", "stream_error", "deadline_exceeded"}
"""The errors with which a fault may end a request."""
SOUND = Fault(process="conductor", point="send", number=0)
"""None fails; passages are counted."""
LIMITS = Limits(backoff_first=0.02, backoff_last=0.1)
TRIES = 8
"""Conductors started before a deployment is given up, as a service does."""


def conduct(directory: Path) -> None:
    work_telemetry.GAUGE_SECONDS = 0.05  # (in this process, and those that it forks)
    spec = read_spec(directory)
    core = Conductor(ItineraryCache(graphs.load(spec.graph), spec.plan), spec.limits, lambda: 7)
    faults = fault_points(spec.fault, directory, "conductor")
    context = sockets.context(faults)
    service = sockets.pair(context, sockets.address(directory, SERVICE_SOCKET))
    workers = sockets.router(context, sockets.address(directory, WORKERS_SOCKET))
    ConductorLoop(directory, core, Connections(service, workers), Off(), OwnForks(), faults=faults).run()
    context.destroy(linger=1000)


class Client:
    """Whoever starts a deployment, asks it, and starts it again when it ends."""

    def __init__(self, directory: Path, case: Case, fault: Fault) -> None:
        self.case, self.directory = case, directory
        self._context: sockets.Context = zmq.Context()
        directory.mkdir(mode=0o700)
        told = sockets.address(directory, "told")
        self._told = sockets.pull(self._context, told)
        write_spec(
            directory,
            DeploymentSpec(
                name="failing",
                graph=graphs.dump(case.graph),
                plan=case.plan,
                telemetry_address=told,
                limits=LIMITS,
                fault=fault,
            ),
        )
        self._socket = sockets.pair_for(self._context, sockets.address(directory, SERVICE_SOCKET))
        self._reader = sockets.Reader(self._socket, codec.from_conductor)
        self._numbers, self.started = count(), 0
        self._begin()

    def _begin(self) -> None:
        self.status: m.Status | None = None
        self.ends: dict[str, str] = {}
        """Run -> its error's code, or a digest of its outputs."""
        self._outputs: dict[str, list[tuple[str, int, m.Value]]] = defaultdict(list)
        self.gauges: dict[int, t.RankGauge] = {}
        self.started += 1
        if self.started > TRIES:
            raise TimeoutError("the deployment ends again and again")
        self.conductor = Child(fork(lambda: conduct(self.directory)))

    def ask(self) -> str:
        """Its error's code, or a digest of what it gave."""
        self.until(lambda: self.status is not None and self.status.state == "ready", "it is ready", again=True)
        run, start, case = RunId(f"run{next(self._numbers)}"), self.started, self.case
        message = m.Submit(run=run, task=case.task, params=dict(case.params), inputs=dict(case.inputs))
        self._socket.send(codec.encode(message))
        self.until(lambda: run in self.ends or self.started > start, f"{run} ends", again=True)
        # A service ends the runs of a process that has ended.
        return self.ends.get(run, "worker_lost")

    def until(self, holds: Callable[[], bool], what: str, *, again: bool = False, longest: float = LONGEST) -> None:
        """`again`: a conductor that has ended is started again."""
        end = time.monotonic() + longest
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: {self.status}")
            self._socket.poll(2)
            for _, message in self._reader.drain():
                self._take(message)
            while self._told.poll(0):
                for event in t.decode(self._told.recv()).events:
                    if isinstance(event, t.RankGauge):
                        self.gauges[event.rank] = event
            if again and self.conductor.poll() is not None:
                self._begin()

    def _take(self, message: m.FromConductor) -> None:
        match message:
            case m.Status():
                self.status = message
                if message.state == "failed":
                    raise TimeoutError(f"the deployment failed: {message.reason}")
            case m.Output():
                self._outputs[message.run].append((message.name, message.index, message.value))
            case m.CallTask():
                self._answer(message)
            case m.Finished():
                self.ends[message.run] = message.error.code if message.error else self._digest(message.run)
            case m.Rejected():
                self.ends[message.run] = message.error.code
            case _:
                pass

    def _answer(self, call: m.CallTask) -> None:
        """As a service does, with what the called task would give."""
        place = {"run": call.run, "rank": call.rank, "step": call.step, "use": call.use, "iteration": call.iteration}
        given = m.Small(value=int(call.params["times"]) + 1)
        self._socket.send(codec.encode(m.TaskAnswer(**place, outputs={"sum": given}, called="called")))

    def _digest(self, run: str) -> str:
        made = sorted(self._outputs[run], key=lambda one: one[:2])
        return hashlib.sha256(msgspec.msgpack.encode(made)).hexdigest()[:16]

    def all_free(self) -> None:
        since, ranks = time.monotonic(), len(self.case.plan.ranks)
        self.until(
            lambda: (
                len(self.gauges) == ranks and all(gauge.at > since and free(gauge) for gauge in self.gauges.values())
            ),
            "all is free",
            again=True,
        )

    def files(self) -> Counter[str]:
        """How many files each process has open, by what it is: `conductor`, `rank0`."""
        names = {rank.pid: f"rank{rank.rank}" for rank in self.status.ranks} if self.status else {}
        names[self.conductor.pid] = "conductor"
        found = Counter[str]()
        for pid in self.processes():
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                found[names.get(pid, f"process {pid}")] = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208
        return found

    def more_files(self, sound: Counter[str]) -> Counter[str]:
        """Those beyond what they have where nothing failed, once connections to processes that have ended are closed:
        that takes a moment."""
        with contextlib.suppress(TimeoutError):
            self.until(lambda: not self.files() - sound, "files are closed", longest=5.0)
        return self.files() - sound

    def processes(self) -> list[int]:
        return [self.conductor.pid, *children(self.conductor.pid)]

    def close(self) -> None:
        left = self.processes() if self.conductor.poll() is None else []
        if left:
            self._socket.send(codec.encode(m.Stop()))
            self.until(lambda: self.conductor.poll() is not None, "the end")
        self._context.destroy(linger=0)
        if not all(map(is_gone, left)):
            raise TimeoutError("a process is left")


def free(gauge: t.RankGauge) -> bool:
    return gauge.pages_free == gauge.pages_total and not gauge.out_tickets and not gauge.runs


class Played(NamedTuple):
    first: str
    """The end of the first request that differs from the run without the fault; the golden digest if none differs."""
    lines: list[str]
    """The lines of the record."""
    files: Counter[str]
    wrong: list[str]


def played(case: Case, fault: Fault, sound: Played | None = None) -> Played:
    """`sound`: the same without a fault."""
    before, wrong, files = shared_memory(), list[str](), Counter[str]()
    folder = Path(tempfile.gettempdir()) / f"wg{secrets.token_hex(4)}"
    client = Client(folder, case, fault)
    record = folder / RECORD
    try:
        first = client.ask()
        client.all_free()
        last = second = client.ask()
        if sound is not None:
            golden = sound.first
            if second != first and first == golden:
                last = client.ask()  # the fault came later
                wrong += [f"then {second}"] if second not in TYPED else []
            wrong += [f"at first {first}"] if first != golden and first not in TYPED else []
            wrong += [f"at last {last}"] if last != golden else []
            first = second if first == golden else first
        client.all_free()
        files = client.files()
        if sound is not None and (more := client.more_files(sound.files)):
            wrong.append(f"files more than {dict(sound.files)}: {dict(more)}")
    except TimeoutError as error:
        first, wrong = "late", [str(error)]
    finally:
        lines = record.read_text().splitlines() if record.exists() else []
        with contextlib.suppress(TimeoutError, zmq.ZMQError, FileNotFoundError):
            client.close()
        if client.conductor.poll() is None:
            os.kill(client.conductor.pid, 9)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    wrong += ["shared memory is left"] if shared_memory() != before else []
    return Played(first, lines, files, wrong)


def prepare(case: Case) -> None:
    """Import what its ranks run, and keep all that is there from garbage collections: processes that are forked now
    have it at once, and share its pages."""
    for node in case.plan.nodes:
        if node.network:
            importlib.import_module(node.network.partition(":")[0])
    gc.collect()
    gc.freeze()


def passages(lines: list[str]) -> dict[tuple[str, str], int]:
    """Process and point -> how often it is reached."""
    return dict(Counter((line.split()[0], line.split()[1]) for line in lines))


def faults_of(lines: list[str], share: int = 1) -> list[Fault]:
    """One for each passage, of each point in each process; of the first half of the passages where `share` is 2."""
    return [
        Fault(process=who, point=point, number=one)
        for (who, point), most in sorted(passages(lines).items())
        for one in range(1, -(-most // share) + 1)
    ]


def main(name: str, size: int, most: int = 0, only: str = "") -> None:
    """`most`: so many faults, drawn; 0: all. `only`: those of `rank0.send`.

    What is drawn comes to pass on a busy machine too, where messages travel together and points are passed less often.
    """
    case = CASES[name](size)
    prepare(case)
    sound = played(case, SOUND)
    print(json.dumps({"case": name, "golden": sound.first, "wrong": sound.wrong}), flush=True)
    known = faults_of(sound.lines, 2 if most else 1)
    faults = [fault for fault in known if only in ("", f"{fault.process}.{fault.point}")]
    for fault in random.Random(most).sample(faults, min(most or len(faults), len(faults))) if most else faults:
        began = time.monotonic()
        found = played(case, fault, sound)
        told = {
            "case": name,
            "fault": f"{fault.process}:{fault.point}:{fault.number}",
            "failed": any(line.endswith("failed") for line in found.lines),
            "end": "right" if found.first == sound.first else found.first,
            "wrong": found.wrong,
            "seconds": round(time.monotonic() - began, 2),
        }
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    for words in sys.argv[1:]:
        asked, *numbers = words.split(":")
        main(asked, *map(int, numbers[:2]), *numbers[2:])
