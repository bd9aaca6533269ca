"""Loops with parts on several ranks: each engine runs its part, and their devices pass values to each other.

    leader                                        the others
    a slot, inboxes ───────── InboxesAt ────────> a slot, inboxes
    linked <───────────────── InboxesAt ─────────
    launches iterations ───── LaunchedTo ───────> launches the same, in this order
    over: writes nothing more ── LeftLoop ──────> frees its inboxes, once it is over here too; and vice versa

One rank leads all such loops of a plan, so that no two devices wait for each other's next launch. A run that is
cancelled here ends its own waits on the device, and needs no message from a peer for that.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

from torch import Tensor

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.device.marks import Mark
from walkgraph.engine.loops.slot_admission import NoPeers
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank, RunId
from walkgraph.layers.channels import StopFlags
from walkgraph.transports.base import Ranges
from walkgraph.wire.spanning import BetweenParts, Inbox, InboxesAt, LaunchedTo, LeftLoop, OfLoop, RunRests

LEADING = 8
"""The most loops that a leader has in slots at a time."""
SLOTS = 32
"""Slots of a group: more than a leader uses, so that none of its loops waits for a slot on another rank."""
_LINE = 128
"""Bytes. Each number has a memory line of its own."""
_NUMBERS = 256
_HALTS = 256
_REMEMBERED = 4096
"""The most cancelled runs that are remembered, because peers may still send messages about them."""


class PeerKey(NamedTuple):
    """Names a loop on all its ranks."""

    run: str
    step: int
    loop: str
    iteration: tuple[int, ...]


def key_of(named: LoopCall | OfLoop) -> PeerKey:
    return PeerKey(named.run, named.step, named.loop, named.iteration)


class PeerWorker(Protocol):
    """The worker, as far as parts need it."""

    def address(self, rank: Rank) -> int:
        """Address, on this device, of the memory that holds a peer's `Inbox`es. Raises CallFailed."""
        ...

    def send(self, to: Rank, word: BetweenParts) -> None: ...


class PeerMemory(NamedTuple):
    """Memory of this rank that peers may write: uint8 `[n]`, and its offset in the memory that they have opened."""

    bytes: Tensor
    offset: int


class LaunchOrder:
    """Launches that a leader has made and this rank has not. It makes the same launches in the same order and none in
    between; otherwise two devices could wait for each other."""

    def __init__(self) -> None:
        self._queue: deque[tuple[PeerKey, int]] = deque()

    def add(self, key: PeerKey, upto: int) -> None:
        self._queue.append((key, upto))

    def upto(self, key: PeerKey) -> int:
        """Iterations that may be launched now, counted from the loop's start; 0 if other loops come first."""
        found = 0
        for one, upto in self._queue:
            if one != key:
                break
            found = upto
        return found

    def launched(self, key: PeerKey, upto: int) -> None:
        while self._queue and self._queue[0][0] == key and self._queue[0][1] <= upto:
            self._queue.popleft()

    def waits(self, key: PeerKey) -> bool:
        """True if launches of the loop are still to be made."""
        return any(one == key for one, _ in self._queue)

    def drop(self, run: str) -> None:
        self._queue = deque(one for one in self._queue if one[0].run != run)


class InboxMemory:
    """The inboxes of this rank's channels.

    | number 0 | number 1 | .. | values ............ |
    """

    def __init__(self, memory: PeerMemory) -> None:
        self._memory = memory
        self._ranges = Ranges(_LINE * _NUMBERS, memory.bytes.nbytes)
        self._starts = [0] * _NUMBERS
        self._free = list(range(_NUMBERS - 1, -1, -1))

    def take(self, channel: int, nbytes: int) -> Inbox | None:
        block = self._ranges.take(nbytes) if self._free else None
        if block is None:
            return None
        number = self._free.pop()
        at = self._memory.offset
        return Inbox(
            channel=channel, data=at + block, number=at + number * _LINE, start=self._starts[number], nbytes=nbytes
        )

    def give(self, inbox: Inbox, times: int) -> None:
        """Return the inbox of a loop that had `times` iterations. Nobody may write or read it any more."""
        number = (inbox.number - self._memory.offset) // _LINE
        self._starts[number] = inbox.start + times + 1
        self._free.append(number)
        self._ranges.give(inbox.data - self._memory.offset)

    def place(self, inbox: Inbox) -> list[int]:
        """Addresses and start of an inbox, as in `layers.channels`."""
        base = self._memory.bytes.data_ptr() - self._memory.offset
        return [base + inbox.data, base + inbox.number, inbox.start]


@dataclass(slots=True, eq=False)
class PeerPart:
    """The part of a loop that has, or had, a slot here."""

    call: LoopCall
    halt: int
    inboxes: dict[int, Inbox]
    over: bool = False
    """True once nothing of it is in flight here."""
    left: set[Rank] = field(default_factory=set[Rank])
    """Peers that have left, and write no more."""


class PeerParts:
    """The parts that hold memory here, and the inboxes of peers that this rank writes."""

    def __init__(self, memory: PeerMemory, worker: PeerWorker) -> None:
        self._inboxes, self._worker = InboxMemory(memory), worker
        self._halts = StopFlags(_HALTS, memory.bytes.device)
        self._parts: dict[PeerKey, PeerPart] = {}
        self._wanted: dict[PeerKey, dict[int, tuple[Rank, Inbox]]] = {}
        """Inboxes for this rank's values, by loop and channel."""
        self._left: dict[PeerKey, set[Rank]] = {}
        """Peers that have left a loop which has no part here yet."""
        self._ending: list[tuple[Mark | None, PeerPart]] = []
        """Parts that have ended, each with a mark behind its work in flight."""

    def __contains__(self, key: PeerKey) -> bool:
        return key in self._parts

    @property
    def all(self) -> list[PeerPart]:
        return list(self._parts.values())

    @property
    def busy(self) -> bool:
        """True if parts are ending, which needs no message from anyone."""
        return bool(self._ending)

    def open(self, call: LoopCall, nbytes: Sequence[int]) -> bool:
        """Take the memory of a part, and send its addresses to the peers; False if there is none now. `nbytes`: bytes
        of a value of each of the call's `reads`. Raises CallFailed if it can never fit."""
        key = key_of(call)
        halt, inboxes = self._halts.take(), dict[int, Inbox]()
        used = {channel.number for channel in call.used}
        for (_, _, channel), size in zip(call.spec.reads, nbytes, strict=True):
            inbox = self._inboxes.take(channel.number, size) if channel.number in used else None
            if inbox is not None:
                inboxes[channel.number] = inbox
        if halt is None or len(inboxes) < len(used):
            self._give_back(halt, inboxes)
            if not self._parts:
                raise CallFailed(
                    f"the values of `{call.loop}` don't fit the memory that this rank shares with its peers"
                )
            return False
        self._parts[key] = PeerPart(call, halt, inboxes, left=self._left.pop(key, set[Rank]()))
        for rank in call.peers:
            mine = tuple(inboxes[channel.number] for channel in call.used if channel.rank == rank)
            if mine:
                self._worker.send(rank, InboxesAt(inboxes=mine, **key._asdict()))
        return True

    def linked(self, call: LoopCall) -> bool:
        """True if the inboxes of all values that it sends are known."""
        known = self._wanted.get(key_of(call), {})
        return all(send.channel.number in known for send in call.sent)

    def links(self, call: LoopCall, nbytes: Sequence[int]) -> list[int]:
        """The links of a linked loop, as in `layers.channels`. `nbytes`: bytes of a value of each of its `sends`.
        Raises CallFailed."""
        key = key_of(call)
        part, wanted = self._parts[key], self._wanted.get(key, {})
        found = [self._halts.address(part.halt)]
        for _, _, channel in call.spec.reads:
            inbox = part.inboxes.get(channel.number)
            found += [0, 0, 0] if inbox is None else self._inboxes.place(inbox)
        sent = {send.channel.number for send in call.sent}
        for send, size in zip(call.spec.sends, nbytes, strict=True):
            if send.channel.number not in sent:
                found += [0, 0, 0]
                continue
            rank, inbox = wanted[send.channel.number]
            if rank != send.channel.rank or inbox.nbytes != size:
                raise CallFailed(f"`{call.loop}` sends rank {send.channel.rank} another size than that rank reads")
            base = self._worker.address(rank)
            found += [base + inbox.data, base + inbox.number, inbox.start]
        return found

    def want(self, rank: Rank, word: InboxesAt) -> None:
        self._wanted.setdefault(key_of(word), {}).update({inbox.channel: (rank, inbox) for inbox in word.inboxes})

    def end(self, key: PeerKey, mark: Mark | None, *, halt: bool) -> None:
        """End a part: its memory is returned once the mark is reached and its peers have left. `halt`: end its waits
        on the device at once."""
        part = self._parts.get(key)
        if part is None or any(part is one for _, one in self._ending):
            return
        if halt:
            self._halts.set(part.halt)
        self._ending.append((mark, part))

    def cancel(self, run: str, mark: Mark | None) -> None:
        for key, part in list(self._parts.items()):
            if key.run == run and not part.over:
                self._halts.set(part.halt)
                self.end(key, mark, halt=True)
        for key in [key for key in self._wanted if key.run == run and key not in self._parts]:
            for rank in {rank for rank, _ in self._wanted.pop(key).values()}:
                self._worker.send(rank, LeftLoop(**key._asdict()))
        self._left = {key: ranks for key, ranks in self._left.items() if key.run != run}

    def halt(self, run: str) -> None:
        """End all waits of a run on the device. May be called from any thread."""
        for key, part in list(self._parts.items()):
            if key.run == run:
                self._halts.set(part.halt)

    def poll(self) -> bool:
        """Close parts that have ended; True if an inbox was returned."""
        ending, self._ending = self._ending, []
        freed = False
        for mark, part in ending:
            if mark is not None and not mark.query():
                self._ending.append((mark, part))
                continue
            part.over = True
            key = key_of(part.call)
            self._wanted.pop(key, None)
            for rank in {send.channel.rank for send in part.call.sent}:
                self._worker.send(rank, LeftLoop(**key._asdict()))
            freed |= self._close(key, part)
        return freed

    def left(self, rank: Rank, key: PeerKey) -> bool:
        """Note that a peer has left a loop; True if an inbox was returned."""
        part = self._parts.get(key)
        if part is None:
            self._left.setdefault(key, set()).add(rank)
            return False
        part.left.add(rank)
        return self._close(key, part)

    def gone(self, rank: Rank) -> bool:
        """Note that a peer has died, and end the waits for it. True if an inbox was returned."""
        freed = False
        for key, part in list(self._parts.items()):
            if rank in part.call.peers:
                self._halts.set(part.halt)
                freed |= self.left(rank, key)
        return freed

    def _close(self, key: PeerKey, part: PeerPart) -> bool:
        if not part.over or not {channel.rank for channel in part.call.used} <= part.left:
            return False
        del self._parts[key]
        self._give_back(part.halt, part.inboxes, part.call.times)
        return True

    def _give_back(self, halt: int | None, inboxes: dict[int, Inbox], times: int = 0) -> None:
        if halt is not None:
            self._halts.give(halt)
        for inbox in inboxes.values():
            self._inboxes.give(inbox, times)


class LoopPeers(NoPeers):
    """The ranks with the other parts of this rank's loops."""

    def __init__(self, memory: PeerMemory, worker: PeerWorker) -> None:
        self.parts, self.order = PeerParts(memory, worker), LaunchOrder()
        self._worker = worker
        self._resting: set[str] = set()
        """Runs whose leader launches nothing."""
        self._held: set[str] = set()
        self._out: OrderedDict[str, None] = OrderedDict()
        """Cancelled runs."""

    @property
    def busy(self) -> bool:
        return self.parts.busy

    def begin(self, call: LoopCall, nbytes: Sequence[int]) -> bool:
        if key_of(call) in self.parts:
            return True
        leading = sum(one.call.spec.leads and not one.over and one.call.run not in self._held for one in self.parts.all)
        if (call.spec.leads and leading >= LEADING) or not (call.spec.leads or self.parts.linked(call)):
            return False
        return self.parts.open(call, nbytes)

    def follow(self, call: LoopCall) -> Callable[[], int] | None:
        return partial(self.order.upto, key_of(call)) if call.peers and not call.spec.leads else None

    def links(self, call: LoopCall, nbytes: Sequence[int]) -> list[int] | None:
        return self.parts.links(call, nbytes) if self.parts.linked(call) else None

    def launching(self, call: LoopCall, upto: int) -> None:
        key = key_of(call)
        if call.spec.leads:
            for rank in call.peers:
                self._worker.send(rank, LaunchedTo(upto=upto, **key._asdict()))
        else:
            self.order.launched(key, upto)

    def may_leave(self, call: LoopCall) -> bool:
        key = key_of(call)
        return call.spec.leads or key not in self.parts or (call.run in self._resting and not self.order.waits(key))

    def owes(self, call: LoopCall) -> bool:
        return not call.spec.leads and self.order.waits(key_of(call))

    def end(self, call: LoopCall, mark: Mark | None, *, halt: bool) -> None:
        self.parts.end(key_of(call), mark, halt=halt)

    def cancel(self, run: str, mark: Mark | None) -> None:
        self._out[run] = None
        if len(self._out) > _REMEMBERED:
            self._out.popitem(last=False)
        self.parts.cancel(run, mark)
        self.order.drop(run)
        self.release(run)

    def hold(self, run: str) -> None:
        self._held.add(run)
        leading = [one.call for one in self.parts.all if one.call.run == run and one.call.spec.leads]
        for rank in sorted({rank for call in leading for rank in call.peers}):
            self._worker.send(rank, RunRests(run=RunId(run)))

    def release(self, run: str) -> None:
        self._resting.discard(run)
        self._held.discard(run)

    def poll(self) -> bool:
        return self.parts.poll()

    def receive(self, rank: Rank, word: BetweenParts) -> bool:
        if isinstance(word, RunRests):
            if word.run not in self._out:
                self._resting.add(word.run)
            return True
        key = key_of(word)
        match word:
            case InboxesAt():
                if key.run in self._out:
                    self._worker.send(rank, LeftLoop(**key._asdict()))
                else:
                    self.parts.want(rank, word)
                return True
            case LaunchedTo():
                # A leader that launches doesn't rest: its message came from an earlier hold.
                self._resting.discard(key.run)
                if key in self.parts and key.run not in self._out:
                    self.order.add(key, word.upto)
                # The part of a held run may have no slot.
                return key.run in self._held
            case LeftLoop():
                return (key in self.parts or key.run not in self._out) and self.parts.left(rank, key)

    def gone(self, rank: Rank) -> bool:
        return self.parts.gone(rank)
