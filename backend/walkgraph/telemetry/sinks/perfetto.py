"""A trace as Chrome JSON, which ui.perfetto.dev and chrome://tracing open.

    process   the run: its phases, and the Walk steps below; then one of each rank, named with its device, and if it is
              not the service's with its host; a label says how many microseconds its times may be off
    thread    of a rank: `host` (what its process prepares), `device` (the batches that it takes part in, for itself or
              as a shard), one a lane with Walk step > call, launch or folded calls, `sends` and `receives`. What
              overlaps goes to a thread of its own, so that slices of a thread nest or are apart
    flows     from a batch's preparation to its execution, from there to its calls, from a call to what it sends, from
              there to its arrival, and on to the call that waits for it
    counters  of a rank: queue, runs, busy share, memory, pages of keys and values

Times are microseconds from the run's beginning.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from walkgraph.telemetry.trace import CALL, FOLDED, LAUNCH, Trace
from walkgraph.telemetry.tracks import spread

MEDIA_TYPE = "application/json"
RUN_PID = 1
RANKS_FROM = 2
"""Process number of rank 0; the others follow."""

_KINDS = {CALL: "call", LAUNCH: "launch", FOLDED: "folded"}
_ARROW = " -> "

Event = dict[str, Any]
Spot = tuple[int, int, int]
"""Process, thread and time of a slice that an arrow leaves or enters."""


def encode(trace: Trace) -> bytes:
    """The content of the file."""
    about = {
        "run": trace.run,
        "deployment": trace.deployment,
        "task": trace.task,
        "state": trace.state,
        "level": trace.level,
        "began": trace.wall,
        "lost_events": trace.lost,
        "clocks": trace.clocks,
        "early_hops": trace.early,
    }
    file, encoder = bytearray(b'{"traceEvents":['), msgspec.json.Encoder()

    # One by one: a long trace has a million events, which take ten times the memory as objects that they take as text.
    def take(event: Event) -> None:
        file.extend(encoder.encode(event))
        file.extend(b",\n")

    _Writer(trace, _Timeline(trace, take)).write()
    # A run's process always has a name.
    del file[-2:]
    file.extend(b'],"displayTimeUnit":"ms","otherData":' + encoder.encode(about) + b"}")
    return bytes(file)


def events(trace: Trace) -> list[Event]:
    """All events; in a thread, an enclosing slice precedes the slices inside."""
    found: list[Event] = []
    _Writer(trace, _Timeline(trace, found.append)).write()
    return found


class _Timeline:
    """The events of a file, with processes and threads that are created and named at their first use."""

    def __init__(self, trace: Trace, take: Callable[[Event], None]) -> None:
        """`trace`: its ranks are named."""
        self._ranks, self._take = trace, take
        self._threads: dict[tuple[int, str], int] = {}
        self._processes: dict[int, str] = {}
        self._flows = 0

    def process(self, rank: int) -> int:
        pid = RANKS_FROM + rank
        if pid not in self._processes:
            trace, host = self._ranks, self._ranks.host_of(rank)
            where = [*trace.devices[rank : rank + 1], *([f"host {host}"] if host else [])]
            self.name_process(pid, f"rank {rank}" + (f" ({', '.join(where)})" if where else ""))
            if error := trace.error_of(rank):
                self._meta("process_labels", pid, 0, {"labels": f"times may be {error} us off"})
        return pid

    def name_process(self, pid: int, name: str) -> None:
        self._processes[pid] = name
        self._meta("process_name", pid, 0, {"name": name})
        self._meta("process_sort_index", pid, 0, {"sort_index": pid})

    def thread(self, pid: int, name: str, line: int = 0) -> int:
        """The number of a thread; `line` separates threads that share a name."""
        key = (pid, name if line == 0 else f"{name} +{line}")
        if key not in self._threads:
            tid = self._threads[key] = 1 + sum(known == pid for known, _ in self._threads)
            self._meta("thread_name", pid, tid, {"name": key[1]})
            self._meta("thread_sort_index", pid, tid, {"sort_index": tid})
        return self._threads[key]

    def _meta(self, name: str, pid: int, tid: int, args: Event) -> None:
        self._take({"ph": "M", "name": name, "pid": pid, "tid": tid, "ts": 0, "args": args})

    def slice(self, name: str, kind: str, pid: int, tid: int, span: tuple[int, int], **args: Any) -> None:
        start, end = span
        place = {"ts": start, "dur": end - start, "pid": pid, "tid": tid}
        self._take({"ph": "X", "name": name, "cat": kind, **place, "args": args})

    def flow(self, kind: str, source: Spot, target: Spot) -> None:
        self._flows += 1
        common = {"name": kind, "cat": kind, "id": self._flows}
        for phase, (pid, tid, ts) in (("s", source), ("f", target)):
            binding = {"bp": "e"} if phase == "f" else {}
            self._take({"ph": phase, **common, "ts": ts, "pid": pid, "tid": tid, **binding})

    def mark(self, name: str, pid: int, tid: int, at: int, **args: Any) -> None:
        place = {"ts": at, "pid": pid, "tid": tid}
        self._take({"ph": "i", "name": name, "cat": "mark", "s": "t", **place, "args": args})

    def counter(self, name: str, pid: int, at: int, values: Event) -> None:
        self._take({"ph": "C", "name": name, "ts": at, "pid": pid, "tid": 0, "args": values})

    def line_up(self, rank: int, name: str, spans: Sequence[tuple[int, int]]) -> list[Spot]:
        """Place spans on threads of this name so that none overlap."""
        pid = self.process(rank)
        order = sorted(range(len(spans)), key=lambda i: spans[i])
        lines = spread([spans[i] for i in order])
        spots: dict[int, Spot] = {
            i: (pid, self.thread(pid, name, line), spans[i][0]) for i, line in zip(order, lines, strict=True)
        }
        return [spots[i] for i in range(len(spans))]


class _Writer:
    """Writes a trace to a timeline."""

    def __init__(self, trace: Trace, timeline: _Timeline) -> None:
        self._trace, self._timeline = trace, timeline
        self._at: dict[int, Spot] = {}
        """Block -> its place on the timeline."""

    def write(self) -> None:
        self._run()
        self._lanes()
        self._batches()
        self._shards()
        self._hops()
        self._counters()
        self._loop_ends()

    # ── the run ─────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        trace, phases = self._trace, self._trace.phases
        self._timeline.name_process(RUN_PID, f"run {trace.run[:8]}")
        tid = self._timeline.thread(RUN_PID, "run")
        end = max(0, round(trace.seconds * 1e6))
        args = {"run": trace.run, "deployment": trace.deployment, "state": trace.state, "error": trace.error}
        self._timeline.slice(trace.task or "run", "run", RUN_PID, tid, (0, end), **args)
        began = min(max(0, phases.get("started", end)), end)
        ended = min(max(began, phases.get("finished", end)), end)
        queued = min(max(0, phases.get("queued", 0)), began)
        self._timeline.slice("queued", "phase", RUN_PID, tid, (queued, began))
        if "started" in phases:
            self._timeline.slice("running", "phase", RUN_PID, tid, (began, ended))
        if "first_output" in phases:
            self._timeline.mark("first output", RUN_PID, tid, phases["first_output"])
        self._steps((began, ended) if "started" in phases else (0, -1))

    def _steps(self, around: tuple[int, int]) -> None:
        """The Walk steps over all ranks, inside the run's slice where possible."""
        blocks, spans = self._trace.blocks, dict[tuple[int, int], tuple[int, int]]()
        for walk, step, start, end in zip(blocks.walk, blocks.step, blocks.started, blocks.finished, strict=True):
            low, high = spans.get((walk, step), (start, end))
            spans[walk, step] = (min(low, start), max(high, end))
        ordered = sorted(spans.items(), key=lambda entry: entry[1])
        lines = spread([span for _, span in ordered])
        for ((walk, step), span), line in zip(ordered, lines, strict=True):
            inside = line == 0 and around[0] <= span[0] and span[1] <= around[1]
            # A separate line for slices that stick out, as they may not overlap the run's phases.
            tid = self._timeline.thread(RUN_PID, "run") if inside else self._timeline.thread(RUN_PID, "walks", line)
            self._timeline.slice(self._step_name(walk, step), "step", RUN_PID, tid, span, step=step)

    def _step_name(self, walk: int, step: int) -> str:
        return f"{self._trace.names[walk]} #{step}"

    # ── what ranks did ──────────────────────────────────────────────────────────────────────────

    def _lanes(self) -> None:
        blocks, by_lane = self._trace.blocks, defaultdict[int, list[int]](list)
        for row in sorted(range(len(blocks.lane)), key=lambda row: (blocks.started[row], blocks.finished[row])):
            by_lane[blocks.lane[row]].append(row)
        for number, lane in enumerate(self._trace.lanes):
            rows = by_lane.get(number, [])
            lines = spread([self._span(row) for row in rows])
            for line in range(1 + max(lines, default=-1)):
                tid = self._timeline.thread(self._timeline.process(lane.rank), lane.name, line)
                self._line(tid, [row for row, its in zip(rows, lines, strict=True) if its == line])

    def _line(self, tid: int, rows: Sequence[int]) -> None:
        """Blocks that don't overlap; consecutive ones of one Walk step go inside a slice for that step."""
        blocks = self._trace.blocks
        steps = [(blocks.walk[row], blocks.step[row]) for row in rows]
        for together in _neighbours(rows, steps):
            first = together[0]
            span = (blocks.started[first], max(self._span(row)[1] for row in together))
            pid = self._timeline.process(self._trace.lanes[blocks.lane[first]].rank)
            name = self._step_name(blocks.walk[first], blocks.step[first])
            self._timeline.slice(name, "step", pid, tid, span, step=blocks.step[first])
            for row in together:
                self._block(row, pid, tid)

    def _block(self, row: int, pid: int, tid: int) -> None:
        blocks, lane = self._trace.blocks, self._trace.lanes[self._trace.blocks.lane[row]]
        args: dict[str, Any] = {
            "iteration": list(blocks.iteration[row]),
            "count": blocks.count[row],
            "batch": blocks.batch[row],
            "busy_us": blocks.busy[row],
            "queued_us": blocks.queued[row],
        }
        if blocks.number[row] >= 0:
            args |= {"number": blocks.number[row], "ready_us": blocks.ready[row]}
        if blocks.mates[row]:
            args["with"] = [self._trace.names[name] for name in blocks.mates[row]]
        if blocks.pages_free[row] >= 0:
            args["pages_free"] = blocks.pages_free[row]
        if blocks.failed[row]:
            args["failed"] = True
        if lane.loop:
            args["nodes"] = list(lane.nodes)
        use = blocks.use[row]
        name = self._trace.names[use] if use >= 0 else lane.name
        if name != lane.name:
            args["node"] = lane.name
        span = self._span(row)
        self._timeline.slice(name, _KINDS.get(blocks.kind[row], "call"), pid, tid, span, **args)
        self._at[row] = (pid, tid, span[0])

    def _span(self, row: int) -> tuple[int, int]:
        start = self._trace.blocks.started[row]
        return start, max(start, self._trace.blocks.finished[row])

    def _batches(self) -> None:
        """Each batch once, even if several blocks of the run belong to it."""
        blocks, found = self._trace.blocks, defaultdict[tuple[int, int], list[int]](list)
        for row, number in enumerate(blocks.number):
            if number >= 0:
                found[self._trace.lanes[blocks.lane[row]].rank, number].append(row)
        by_rank = defaultdict[int, list[list[int]]](list)
        for (rank, _), rows in found.items():
            by_rank[rank].append(rows)
        for rank, batches in sorted(by_rank.items()):
            firsts = [rows[0] for rows in batches]
            prepared = [(blocks.taken[row], max(blocks.taken[row], blocks.launched[row])) for row in firsts]
            hosts = self._timeline.line_up(rank, "host", prepared)
            devices = self._timeline.line_up(rank, "device", [self._span(row) for row in firsts])
            for rows, span, host, device in zip(batches, prepared, hosts, devices, strict=True):
                self._batch(rows, span, host, device)

    def _batch(self, rows: Sequence[int], prepared: tuple[int, int], host: Spot, device: Spot) -> None:
        blocks, first = self._trace.blocks, rows[0]
        kind = "launch" if blocks.kind[first] == LAUNCH else "forward"
        args = {"number": blocks.number[first], "batch": blocks.batch[first]}
        self._timeline.slice("prepare", "host", host[0], host[1], prepared, **args)
        self._timeline.slice(kind, "device", device[0], device[1], self._span(first), **args)
        self._timeline.flow("batch", host, device)
        for row in rows if len(rows) > 1 else ():
            self._timeline.flow("batch", device, self._at[row])

    def _shards(self) -> None:
        """The parts that other shards took in the batches."""
        shards = self._trace.shards
        for rank, rows in _by(range(len(shards.rank)), shards.rank):
            spans = [(shards.started[row], shards.finished[row]) for row in rows]
            for row, (pid, tid, _), span in zip(
                rows, self._timeline.line_up(rank, "device", spans), spans, strict=True
            ):
                self._timeline.slice("shard", "device", pid, tid, span, number=shards.number[row], of=shards.of[row])

    # ── hops ────────────────────────────────────────────────────────────────────────────────────

    def _hops(self) -> None:
        hops, rows = self._trace.hops, range(len(self._trace.hops.sent))
        ends = [max(hops.sent[row], hops.arrived[row]) + 1 for row in rows]
        sends, receives = dict[int, Spot](), dict[int, Spot]()
        for rank, mine in _by(rows, hops.source):
            spans = [(hops.sent[row], ends[row]) for row in mine]
            sends |= zip(mine, self._timeline.line_up(rank, "sends", spans), strict=True)
        for rank, mine in _by([row for row in rows if hops.arrived[row] >= 0], hops.target):
            spans = [(hops.arrived[row], hops.arrived[row] + 1) for row in mine]
            receives |= zip(mine, self._timeline.line_up(rank, "receives", spans), strict=True)
        calls = _Calls(self._trace)
        for row in rows:
            self._hop(row, ends[row], sends[row], receives.get(row), calls)

    def _hop(self, row: int, end: int, leaves: Spot, comes: Spot | None, calls: "_Calls") -> None:
        hops, names = self._trace.hops, self._trace.names
        name = names[hops.edge[row]]
        args = {
            "to": hops.target[row],
            "walk": names[hops.walk[row]],
            "step": hops.step[row],
            "key": list(hops.key[row]),
            "transport": names[hops.transport[row]],
            "count": hops.count[row],
            "bytes": hops.nbytes[row],
        }
        self._timeline.slice(name, "transfer", leaves[0], leaves[1], (hops.sent[row], end), **args)
        source = calls.before(row)
        if source is not None:
            self._timeline.flow("value", self._at[source], leaves)
        if comes is None:
            return
        self._timeline.slice(name, "transfer", comes[0], comes[1], (comes[2], comes[2] + 1), source=hops.source[row])
        self._timeline.flow("hop", leaves, comes)
        target = calls.after(row)
        if target is not None:
            self._timeline.flow("value", comes, self._at[target])

    # ── counters ───────────────────────────────────────────────────────────────────────────────────

    def _counters(self) -> None:
        counters = self._trace.counters
        for row, (rank, at) in enumerate(zip(counters.rank, counters.at, strict=True)):
            pid = self._timeline.process(rank)
            gauges: dict[str, dict[str, float]] = {
                "queue": {"calls": counters.queue[row]},
                "runs": {"runs": counters.runs[row]},
                "busy": {"share": counters.busy[row]},
                "memory": {"bytes": counters.memory_used[row]},
            }
            if counters.pages_total[row] > 0:
                used, total = counters.pages_used[row], counters.pages_total[row]
                gauges["KV pages"] = {"used": used, "free": total - used}
            for name, values in gauges.items():
                self._timeline.counter(name, pid, at, values)

    def _loop_ends(self) -> None:
        for end in self._trace.loops:
            pid = self._timeline.process(end.rank)
            args = {"walk": end.walk, "iterations": end.iterations, "reason": end.reason}
            self._timeline.mark(f"{end.loop} ended", pid, self._timeline.thread(pid, "loops"), end.at, **args)


class _Calls:
    """The call that produced a value which left, and the call that consumed it. They are found by the use in the edge's
    name, unless that is in a loop; otherwise by time alone, among calls of the same rank and Walk step."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        blocks = trace.blocks
        self._starts: dict[tuple[int | str, ...], list[tuple[int, int]]] = defaultdict(list)
        self._ends: dict[tuple[int | str, ...], list[tuple[int, int]]] = defaultdict(list)
        for row, lane in enumerate(blocks.lane):
            place = (trace.lanes[lane].rank, blocks.walk[row], blocks.step[row])
            use = blocks.use[row]
            for key in (place, *(((*place, trace.names[use]),) if use >= 0 else ())):
                self._starts[key].append((blocks.ready[row] if blocks.number[row] >= 0 else blocks.started[row], row))
                self._ends[key].append((blocks.finished[row], row))
        for rows in (*self._starts.values(), *self._ends.values()):
            rows.sort()

    def before(self, hop: int) -> int | None:
        """The last block that had ended when the value left."""
        found = self._among(self._ends, self._trace.hops.source[hop], hop, 0)
        at = bisect_right(found, (self._trace.hops.sent[hop], len(self._trace.blocks.lane)))
        return found[at - 1][1] if at else None

    def after(self, hop: int) -> int | None:
        """The first block that became ready after the value had arrived."""
        found = self._among(self._starts, self._trace.hops.target[hop], hop, -1)
        at = bisect_left(found, (self._trace.hops.arrived[hop], -1))
        return found[at][1] if at < len(found) else None

    def _among(
        self, rows: dict[tuple[int | str, ...], list[tuple[int, int]]], rank: int, hop: int, side: int
    ) -> list[tuple[int, int]]:
        hops = self._trace.hops
        place = (rank, hops.walk[hop], hops.step[hop])
        use = self._trace.names[hops.edge[hop]].split(_ARROW)[side].partition(".")[0]
        return rows.get((*place, use)) or rows.get(place) or []


def _neighbours(rows: Sequence[int], keys: Sequence[object]) -> Iterable[list[int]]:
    """Groups of consecutive rows with equal keys."""
    for _, entries in groupby(zip(keys, rows, strict=True), key=itemgetter(0)):
        yield [row for _, row in entries]


def _by(rows: Iterable[int], ranks: Sequence[int]) -> Iterable[tuple[int, list[int]]]:
    found = defaultdict[int, list[int]](list)
    for row in rows:
        found[ranks[row]].append(row)
    return sorted(found.items())
