"""`--processes N`: the tests run in N processes, forked from this one once it has collected them.

So test modules, and what they import, are read and compiled once; each of several processes that are started would do
so anew: half a minute of a core, and more than a minute after a new checkout. A process asks for a group of tests when
it begins the last test of the one before: so it knows which fixtures it still needs. What it reports is printed here
as if it had run here. A process that dies fails the test that it ran, and another one goes on after it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
import warnings
from collections import Counter, deque
from collections.abc import Iterator
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest._io import TerminalWriter

from walkgraph.wire.processes.common import die_with

BESIDE_OTHERS = pytest.StashKey[bool]()
"""Set in a process that runs beside others."""
SECONDS = pytest.StashKey[Counter[str]]()
"""What the tests of each group took, in all."""
LISTED = 25


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, metavar="N", help="run groups of tests in N processes")


def group_of(item: pytest.Item) -> str:
    """The nearest mark counts: before that of its file, that of the test itself."""
    mark = item.get_closest_marker("group")
    assert mark is not None, item.nodeid
    return str(mark.args[0])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count: int = session.config.getoption("--processes")
    if count < 1 or session.testsfailed or session.config.getoption("collectonly"):
        return None
    parts = Parts(session)
    session.config.stash[SECONDS] = parts.seconds
    try:
        parts.run(count)
    finally:
        parts.close()
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    seconds = config.stash.get(SECONDS, Counter[str]())
    if seconds and config.getoption("durations"):
        terminalreporter.section("slowest groups")
        for group, taken in seconds.most_common(LISTED):
            terminalreporter.write_line(f"{taken:.0f}s {group}")


class Parts:
    """The tests, in groups, and the processes that share them."""

    def __init__(self, session: pytest.Session) -> None:
        self.seconds: Counter[str] = Counter()
        self._session = session
        self._waiting: deque[range] = deque()
        """Places of tests; those of a group follow each other."""
        place = 0
        for _, items in groupby(session.items, group_of):
            count = len(list(items))
            self._waiting.append(range(place, place + count))
            place += count
        self._open = selectors.DefaultSelector()

    def run(self, count: int) -> None:
        for _ in range(count):
            self._start()
        while self._open.get_map():
            for key, _ in self._open.select():
                self._hear(key.data)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)

    def close(self) -> None:
        """Interrupt those that still run, and wait until they have taken down what they started."""
        left = self._processes()
        for process in left:
            os.kill(process.pid, signal.SIGINT)
        for process in left:
            process.answer(None)
            while process.read() is not None:
                pass
            self._wait(process)
        self._open.close()

    def _processes(self) -> list[Process]:
        return [key.data for key in self._open.get_map().values()]

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        base = self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        sys.stdout.flush()
        sys.stderr.flush()
        parent, pid = os.getpid(), os.fork()
        if not pid:
            die_with(parent)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for channel in (ours, *(process.channel for process in self._processes())):
                channel.close()
            _be(Forked(self._session, theirs), base / f"process{os.getpid()}")
        theirs.close()
        self._open.register(ours, selectors.EVENT_READ, Process(pid, ours))

    def _hear(self, process: Process) -> None:
        lines = process.read()
        if lines is None:
            self._wait(process)
            if process.given:
                self._lost(process)
            return
        for line in lines:
            told = json.loads(line)
            if told is not None:
                self._report(process, told)
            elif self._waiting:
                group = self._waiting.popleft()
                process.given.append(group)
                process.answer([group.start, group.stop])
            else:
                process.answer(None)

    def _report(self, process: Process, told: dict[str, Any]) -> None:
        config, item = self._session.config, self._session.items[process.given[0].start]
        if isinstance(told["longrepr"], list):
            told["longrepr"] = tuple(told["longrepr"])  # the place and reason of a skip, which JSON made a list
        report: pytest.TestReport = config.hook.pytest_report_from_serializable(config=config, data=told)
        self.seconds[group_of(item)] += report.duration
        if report.when == "setup":
            config.hook.pytest_runtest_logstart(nodeid=report.nodeid, location=report.location)
        config.hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            config.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            process.pass_over()

    def _wait(self, process: Process) -> None:
        self._open.unregister(process.channel)
        process.channel.close()
        _, process.status = os.waitpid(process.pid, 0)

    def _lost(self, process: Process) -> None:
        item = self._session.items[process.given[0].start]
        text = f"its process ended: {os.waitstatus_to_exitcode(process.status)}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        process.pass_over()
        self._waiting.extendleft(reversed(process.given))
        self._start()


class Process:
    """One of them, as its parent sees it."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel
        self.given: deque[range] = deque()
        """Less what it has reported: it runs the first of the first."""
        self.status = 0
        self._rest = b""

    def pass_over(self) -> None:
        self.given[0] = self.given[0][1:]
        if not self.given[0]:
            self.given.popleft()

    def read(self) -> list[bytes] | None:
        """Return the lines that have come; `None` at the end."""
        try:
            data = self.channel.recv(1 << 20)
        except ConnectionResetError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines

    def answer(self, said: list[int] | None) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.channel.sendall(json.dumps(said).encode() + b"\n")


class Forked:
    """One of them, as it sees itself; it is the plugin that tells of each report."""

    def __init__(self, session: pytest.Session, channel: socket.socket) -> None:
        self.session = session
        self._channel = channel.makefile("rwb")

    def run(self) -> None:
        items = self._given()
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self.session.config
        self._tell(config.hook.pytest_report_to_serializable(config=config, report=report))

    def _given(self) -> Iterator[pytest.Item]:
        while True:
            self._tell(None)
            answer = json.loads(self._channel.readline() or "null")
            if answer is None:
                return
            yield from self.session.items[slice(*answer)]

    def _tell(self, told: Any) -> None:
        self._channel.write(json.dumps(told).encode() + b"\n")
        self._channel.flush()


def _be(forked: Forked, folder: Path) -> NoReturn:
    """Run in a forked process, which ends here."""
    config, code = forked.session.config, 1
    config.stash[BESIDE_OTHERS] = True
    plugins = config.pluginmanager
    try:
        # The files in which the parent catches what is printed are the parent's.
        capture = plugins.get_plugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        plugins.get_plugin("terminalreporter")._tw = TerminalWriter(StringIO())
        folder.mkdir()
        config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        plugins.register(forked)
        with contextlib.suppress(KeyboardInterrupt):
            forked.run()
        forked.session._setupstate.teardown_exact(None)
        with warnings.catch_warnings():
            # Of folders that are removed only now, as they are at the end of any process.
            warnings.simplefilter("ignore", ResourceWarning)
            atexit._run_exitfuncs()
        code = 0
    except BaseException:  # noqa: BLE001  (none of it may go on in what the parent was doing)
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)
