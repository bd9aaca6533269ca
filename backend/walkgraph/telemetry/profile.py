"""The time of a request, divided into named shares for a person: from the head of the request to the last byte of its
answer.

Each instant belongs to exactly one share, so the shares add up to the whole. Where several things went on at once, the
first of `Layer` counts: what a device computes hides what the host does meanwhile, work hides waiting, and the run
hides what the service reads, encodes and sends while it goes on. What nothing explains is a share of its own, `other`:
events were lost, telemetry was off, or a process died.

`summary` telemetry reports only the totals of several calls. They are laid out behind each other, at the end of the
time that the calls span, so the shares are estimates if such calls overlapped.
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from walkgraph.telemetry.trace import FOLDED, Does, Served, Trace

Share = Literal["socket", "decode", "queue", "host", "launch", "device", "transfer", "call", "encode", "other"]


class Layer(IntEnum):
    """Things that may go on at an instant; the first one counts."""

    COMPUTE = 0
    DECODER = 1
    ENCODER = 2
    HOST_NODE = 3
    LAUNCH = 4
    TRANSFER = 5
    CALL = 6
    QUEUE = 7
    BETWEEN = 8
    """Service, conductor and ranks have the run, and nothing above goes on."""
    READ = 9
    PARSED = 10
    WRITTEN = 11
    SENT = 12


_SHARES: dict[Layer, Share] = {
    Layer.COMPUTE: "device",
    Layer.DECODER: "decode",
    Layer.ENCODER: "encode",
    Layer.HOST_NODE: "host",
    Layer.LAUNCH: "launch",
    Layer.TRANSFER: "transfer",
    Layer.CALL: "call",
    Layer.QUEUE: "queue",
    Layer.BETWEEN: "host",
    Layer.READ: "socket",
    Layer.PARSED: "decode",
    Layer.WRITTEN: "encode",
    Layer.SENT: "socket",
}
_LAYERS: dict[Does, Layer] = {
    "compute": Layer.COMPUTE,
    "host": Layer.HOST_NODE,
    "decode": Layer.DECODER,
    "encode": Layer.ENCODER,
    "call": Layer.CALL,
}
WORDS: dict[Share, tuple[str, str]] = {
    "socket": (
        "bytes of the request and its answer on the socket",
        "send and accept less: binary frames in place of base64, fewer or smaller outputs; or move the client closer",
    ),
    "decode": (
        "JSON, base64, pictures and sounds of the request are decoded",
        "send tensors and media as binary frames or form parts, and pictures at the size that the model uses",
    ),
    "queue": (
        "waiting to be admitted, for a batch, or for a device behind other work",
        "see `walkgraph queue`; spread the load over more ranks, or raise the request's priority",
    ),
    "host": (
        "service, conductor and ranks between calls, and nodes that run on the host",
        "make fewer and larger calls: loops that run on the device, fewer small nodes between them",
    ),
    "launch": (
        "the host prepares inputs and hands work to the device",
        "let the loop run on the device; `walkgraph plan` says which loops do, and why others don't",
    ),
    "device": (
        "the model computes on its device",
        "see the nodes in `walkgraph trace`; try a lower precision, fewer steps, or more devices",
    ),
    "transfer": (
        "values on their way between ranks",
        "place nodes that exchange large values on one rank",
    ),
    "call": (
        "another task or a server outside is at work",
        "look at the trace of the called run, or at the server",
    ),
    "encode": (
        "the answer is encoded: pictures, sounds, JSON, base64",
        "accept `application/vnd.msgpack` or safetensors, and select values and a dtype in `outputs`",
    ),
    "other": (
        "nothing that was reported explains it",
        "set the telemetry level to `full` and look whether events were lost",
    ),
}
"""Share -> what it is, and what to do about it; in the order in which a request comes by them."""


class Span(NamedTuple):
    """Something that went on; times in microseconds."""

    layer: Layer
    began: int
    ended: int


class Row(msgspec.Struct, frozen=True, kw_only=True):
    share: Share
    seconds: float
    part: float
    """Part of the whole, 0 to 1."""
    means: str
    advice: str


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    at: float
    """Seconds from the beginning of the request."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    """The time from the head of the request to its answer's last byte, as far as the service knows them; otherwise that
    of the run."""
    exact: bool
    """False if single calls were not reported."""
    shares: tuple[Row, ...]
    """All of them, in the order in which a request comes by them; they add up to the whole."""
    largest: Share
    moments: tuple[Moment, ...]
    """The known borders on the request's way, by time."""


def profile(trace: Trace) -> Profile:
    """The profile of a run: so far, if it goes on."""
    total, served = max(0, round(trace.seconds * 1e6)), trace.served
    began = min(0, served.submitted if served.received is None else served.received) if served else 0
    ended = max([total, *_known(served.ended, served.last_sent)]) if served else total
    found = divided(_spans(trace, total), began, ended)
    whole = max(1, ended - began)
    rows = tuple(
        Row(
            share=share, seconds=found.get(share, 0) / 1e6, part=found.get(share, 0) / whole, means=means, advice=advice
        )
        for share, (means, advice) in WORDS.items()
    )
    return Profile(
        seconds=(ended - began) / 1e6,
        exact=FOLDED not in trace.blocks.kind,
        shares=rows,
        largest=max(rows, key=lambda row: row.seconds).share,
        moments=tuple(
            Moment(what=what, at=(at - began) / 1e6)
            for at, what in sorted(_moments(trace), key=lambda moment: moment[0])
        ),
    )


def divided(spans: Iterable[Span], began: int, ended: int) -> dict[Share, int]:
    """Microseconds of each share between two times: at each instant, that of the first layer with a span there, or
    `other`."""
    changes = [(began, None, 0), (ended, None, 0)]
    for layer, since, until in spans:
        since, until = max(since, began), min(until, ended)
        if since < until:
            changes += [(since, layer, 1), (until, layer, -1)]
    changes.sort(key=lambda change: change[0])
    active = dict.fromkeys(Layer, 0)
    found: dict[Share, int] = {}
    for (at, layer, change), (then, _, _) in pairwise(changes):
        if layer is not None:
            active[layer] += change
        if then > at:
            first = next((layer for layer, count in active.items() if count), None)
            share: Share = "other" if first is None else _SHARES[first]
            found[share] = found.get(share, 0) + then - at
    return found


# ── what went on ────────────────────────────────────────────────────────────────────────────────


def _spans(trace: Trace, total: int) -> Iterator[Span]:
    yield from _blocks(trace)
    for sent, arrived in zip(trace.hops.sent, trace.hops.arrived, strict=True):
        yield Span(Layer.TRANSFER, sent, arrived)
    queued = trace.phases.get("queued")
    if queued is not None:
        yield Span(Layer.QUEUE, queued, trace.phases.get("started", total))
    yield from _between(trace, total)
    if trace.served is not None:
        yield from _service(trace.served)


def _blocks(trace: Trace) -> Iterator[Span]:
    b = trace.blocks
    for row, kind in enumerate(b.kind):
        layer, started, finished = _LAYERS[trace.lanes[b.lane[row]].does], b.started[row], b.finished[row]
        if kind == FOLDED:
            working = max(started, finished - b.busy[row])
            yield Span(layer, working, finished)
            yield Span(Layer.QUEUE, working - b.queued[row], working)
            continue
        launched = min(b.launched[row], started)
        yield Span(layer, started, finished)
        yield Span(Layer.LAUNCH, b.taken[row], launched)
        yield Span(Layer.QUEUE, b.ready[row], b.taken[row])
        # All of it is handed over, and the device is still busy with other work.
        yield Span(Layer.QUEUE, launched, started)


def _between(trace: Trace, total: int) -> Iterator[Span]:
    """Says where the run was when nothing of it went on; not known where the event of a rank is missing."""
    started, finished = trace.phases.get("started"), trace.phases.get("finished")
    for part in trace.parts:
        yield Span(Layer.BETWEEN, part.received if started is None else started, part.done)
        if finished is not None:
            yield Span(Layer.BETWEEN, part.done, finished)
    served, queued = trace.served, trace.phases.get("queued")
    if served is not None and queued is not None:
        yield Span(Layer.BETWEEN, served.submitted, queued)
    if served is not None and served.ended is not None and finished is not None:
        yield Span(Layer.BETWEEN, finished, served.ended)


def _service(served: Served) -> Iterator[Span]:
    if served.received is not None and served.read is not None:
        yield Span(Layer.READ, served.received, served.read)
        yield Span(Layer.PARSED, served.read, served.submitted)
    if served.ended is None:
        return
    answering = served.ended if served.answering is None else served.answering
    yield Span(Layer.BETWEEN, served.ended, answering)
    if served.last_sent is not None:
        # Encoding and sending take turns; only their sums are known.
        sending = served.last_sent - served.sending
        yield Span(Layer.WRITTEN, answering, sending)
        yield Span(Layer.SENT, max(answering, sending), served.last_sent)


# ── borders ─────────────────────────────────────────────────────────────────────────────────────


def _moments(trace: Trace) -> Iterator[tuple[int, str]]:
    served, b = trace.served, trace.blocks
    if served is not None:
        for field, what in _SERVICE.items():
            at: int | None = getattr(served, field)
            if at is not None:
                yield at, what
    yield from ((at, _PHASES[phase]) for phase, at in trace.phases.items() if phase in _PHASES)
    yield from ((part.received, f"rank {part.rank} received it") for part in trace.parts)
    yield from ((part.done, f"rank {part.rank} was done") for part in trace.parts)
    computing = [row for row, lane in enumerate(b.lane) if trace.lanes[lane].does == "compute"]
    if computing:
        yield min(b.taken[row] for row in computing), "first launch prepared"
        yield min(b.started[row] for row in computing), "device began"
        yield max(b.finished[row] for row in computing), "device ended"


_SERVICE = {
    "received": "service received the request",
    "read": "its bytes were read",
    "submitted": "inputs were decoded",
    "ended": "service heard of the end",
    "answering": "encoding of the answer began",
    "first_sent": "first byte sent",
    "last_sent": "last byte sent",
}
_PHASES = {"queued": "conductor received it", "started": "admitted", "finished": "conductor ended it"}


def _known(*times: int | None) -> Iterator[int]:
    return (at for at in times if at is not None)
