"""Fault points: named places of the data plane, each of which can be made to fail once, the N-th time it is reached.

A place asks `due` and raises what it raises by itself where the system refuses: no faked text, no patched function.
Without a `Fault` there is no `FaultPoints`, and places hold None. What is reached is recorded in the deployment's
directory, so that a test can count the passages of a run and see whether its fault came to pass. A deployment has one
fault: what is started again in its directory afterwards is sound.
"""

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

from walkgraph.errors import InvalidInput

POINTS: Mapping[str, str] = {
    "send": "a socket takes a message",
    "receive": "a message is taken from a socket",
    "open.socket": "a socket is made",
    "open.process": "a worker process is started",
    "open.arena": "a worker's arena is made",
    "open.peer": "a peer's arena is opened",
    "open.weights": "weights are opened",
    "allocate.pages": "pages of a cache are taken",
    "allocate.arena": "a tensor is put into an arena",
    "allocate.tensors": "a batch's tensors are made",
    "allocate.slots": "a launch of a loop is made ready",
    "launch.batch": "a batch is launched",
    "launch.loop": "a step of a loop is launched",
}
RECORD = "faults"
"""File in the deployment's directory: a line a passage, `rank0 send 3`, with ` failed` where it did."""
_FAILED = " failed\n"


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `number`-th passage of a point in a process fails; 0: none does, and passages are counted."""

    process: str
    """`conductor` or `rank<number>`."""
    point: str
    number: int


def read_fault(text: str) -> Fault:
    """Parses `rank0:send:3`. Raises InvalidInput."""
    process, _, rest = text.partition(":")
    point, _, number = rest.partition(":")
    rank = process.removeprefix("rank")
    if process != "conductor" and not (process.startswith("rank") and rank.isdecimal()):
        raise InvalidInput(f"`{process}` is neither `conductor` nor `rank` and a number")
    if point not in POINTS:
        raise InvalidInput(f"`{point}` is not a fault point; have {', '.join(POINTS)}")
    if not number.isdecimal():
        raise InvalidInput(f"`{number}` is not the number of a passage")
    return Fault(process=process, point=point, number=int(number))


class FaultPoints:
    """The fault points of one process."""

    def __init__(self, fault: Fault, process: str, record: Path) -> None:
        self._process, self._record = process, record
        over = record.exists() and _FAILED in record.read_text()
        self._fault = fault if fault.process == process and fault.number and not over else None
        self._reached: Counter[str] = Counter()

    def due(self, point: str) -> bool:
        """Count a passage of a point; whether it fails."""
        self._reached[point] += 1
        number, fault = self._reached[point], self._fault
        failed = fault is not None and (fault.point, fault.number) == (point, number)
        line = f"{self._process} {point} {number}{_FAILED if failed else chr(10)}"
        file = os.open(self._record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)
        return failed


def fault_points(fault: Fault | None, directory: Path, process: str) -> FaultPoints | None:
    """None where no fault is set: its places have nothing to ask then."""
    return None if fault is None else FaultPoints(fault, process, directory / RECORD)
