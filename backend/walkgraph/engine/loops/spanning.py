"""Loops whose parts lie on several ranks: each engine runs its part, and their devices hand each other the values.

    leader                                      the others
    a row, inboxes ────────── told ───────────> a row, inboxes
    linked <───────────────── told ────────────
    launches iterations ───── ridden ─────────> launches the same, in this order
    over: nothing is written any more ─ left ─> gives its inboxes back, once it is over here too; and the other way

One rank leads all such loops of a plan, so that no two devices wait for each other's next launch. A run that is taken
out here halts its own waits: nobody needs a peer's word to go on.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from walkgraph.abi.calls import CallFailed
from walkgraph.engine.loops.spec import LoopCall
from walkgraph.ids import Rank
from walkgraph.layers.channels import StopFlags
from walkgraph.transports.base import Ranges

SEATS = 8
"""Loops that a leader has in rows at a time."""
ROWS = 32
"""Of a lane: the others have more than a leader takes, so that none of its loops waits for a row there."""
_LINE = 128
"""Bytes: a number has a line of memory of its own."""
_NUMBERS = 256
_HALTS = 256
_REMEMBERED = 4096
"""Runs that were taken out here, and of which peers may yet tell."""


class Key(NamedTuple):
    """Names a loop on all its ranks."""

    run: str
    step: int
    loop: str
    iteration: tuple[int, ...]


def key_of(call: LoopCall) -> Key:
    return Key(call.run, call.step, call.loop, call.iteration)


class Inbox(NamedTuple):
    """Where values of a channel are to be put: offsets in the memory of who reads them."""

    channel: int
    data: int
    number: int
    start: int
    """The number is more than this where a value is there."""
    nbytes: int


class Outside(Protocol):
    """What the parts need of the worker around them."""

    def address(self, rank: Rank) -> int:
        """Of the memory of a peer that its `Inbox`s lie in, as this device sees it. Raises CallFailed."""
        ...

    def told(self, to: Rank, key: Key, inboxes: Sequence[Inbox]) -> None: ...

    def ridden(self, to: Rank, key: Key, upto: int) -> None:
        """At once: it may not wait behind tensors."""
        ...

    def rested(self, to: Rank, run: str) -> None:
        """Nothing more of a run is launched before it was resumed."""
        ...

    def left(self, to: Rank, key: Key) -> None:
        """Nothing more is written into its inboxes for this loop."""
        ...


class Memory(NamedTuple):
    """What peers may write of this rank's: uint8 `[n]`, and where it begins in what they have opened."""

    bytes: Tensor
    offset: int


class Rides:
    """What a leader has launched, as far as it was told and not launched here: others launch it in this order, and
    nothing between, or two devices would wait for each other."""

    def __init__(self) -> None:
        self._told: deque[tuple[Key, int]] = deque()

    def add(self, key: Key, upto: int) -> None:
        self._told.append((key, upto))

    def upto(self, key: Key) -> int:
        """Iterations that may be launched now, counted from the loop's start; 0 if others come first."""
        found = 0
        for one, upto in self._told:
            if one != key:
                break
            found = upto
        return found

    def launched(self, key: Key, upto: int) -> None:
        while self._told and self._told[0][0] == key and self._told[0][1] <= upto:
            self._told.popleft()

    def waits(self, key: Key) -> bool:
        """Whether something of it is to be launched yet."""
        return any(one == key for one, _ in self._told)

    def drop(self, run: str) -> None:
        self._told = deque(one for one in self._told if one[0].run != run)


class Inboxes:
    """The inboxes of this rank's channels.

    | number 0 | number 1 | .. | values ............ |
    """

    def __init__(self, memory: Memory) -> None:
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
        return Inbox(channel, at + block, at + number * _LINE, self._starts[number], nbytes)

    def give(self, inbox: Inbox, times: int) -> None:
        """Of a loop of so many iterations; nobody writes or reads there any more."""
        number = (inbox.number - self._memory.offset) // _LINE
        self._starts[number] = inbox.start + times + 1
        self._free.append(number)
        self._ranges.give(inbox.data - self._memory.offset)

    def place(self, inbox: Inbox) -> list[int]:
        """As `layers.channels` has it."""
        base = self._memory.bytes.data_ptr() - self._memory.offset
        return [base + inbox.data, base + inbox.number, inbox.start]


@dataclass(slots=True, eq=False)
class _Part:
    """A loop that has, or had, a row here."""

    call: LoopCall
    halt: int
    inboxes: dict[int, Inbox]
    over: bool = False
    """Nothing of it is under way here."""
    left: set[Rank] = field(default_factory=set[Rank])
    """Peers that write no more."""


class Spans:
    """The parts of spanning loops on this rank."""

    def __init__(self, memory: Memory, outside: Outside) -> None:
        self.rides = Rides()
        self._inboxes, self._outside = Inboxes(memory), outside
        self._halts = StopFlags(_HALTS, memory.bytes.device)
        self._parts: dict[Key, _Part] = {}
        self._told: dict[Key, dict[int, tuple[Rank, Inbox]]] = {}
        """Where peers want this rank's values, by channel."""
        self._gone: dict[Key, set[Rank]] = {}
        """Peers that have left a loop which has no part here yet."""
        self._ending: list[tuple[Any, _Part]] = []
        """With a mark behind what is under way."""
        self._resting: set[str] = set()
        self._held: set[str] = set()
        self._out: OrderedDict[str, None] = OrderedDict()
        """Runs that were taken out."""

    @property
    def busy(self) -> bool:
        """Whether something ends by itself."""
        return bool(self._ending)

    # ── rows ──

    def begin(self, call: LoopCall, nbytes: Sequence[int]) -> bool:
        """Take what a part needs before it gets a row, and tell its peers; False: not now. `nbytes`: of a value of each
        of the call's `reads`. Raises CallFailed where it can never be."""
        key = key_of(call)
        if key in self._parts:
            return True
        if (call.leads and self._seated() >= SEATS) or not (call.leads or self.linked(call)):
            return False
        halt, inboxes = self._halts.take(), dict[int, Inbox]()
        used = {channel.number for channel in call.used}
        for (_, _, channel), size in zip(call.reads, nbytes, strict=True):
            inbox = self._inboxes.take(channel.number, size) if channel.number in used else None
            if inbox is not None:
                inboxes[channel.number] = inbox
        if halt is None or len(inboxes) < len(used):
            self._take_back(halt, inboxes)
            if not self._parts:
                raise CallFailed(f"the values of `{call.loop}` don't fit what this rank shares with others")
            return False
        self._parts[key] = _Part(call, halt, inboxes, left=self._gone.pop(key, set[Rank]()))
        for rank in call.peers:
            mine = [inboxes[channel.number] for channel in call.used if channel.rank == rank]
            if mine:
                self._outside.told(rank, key, mine)
        return True

    def _seated(self) -> int:
        parts = self._parts.values()
        return sum(part.call.leads and not part.over and part.call.run not in self._held for part in parts)

    def linked(self, call: LoopCall) -> bool:
        """Whether it is known where all that it sends goes."""
        known = self._told.get(key_of(call), {})
        return all(send.channel.number in known for send in call.sent)

    def links(self, call: LoopCall, nbytes: Sequence[int]) -> list[int]:
        """The row of a loop that is linked, as `layers.channels` has it. `nbytes`: of a value of each of its `sends`.
        Raises CallFailed."""
        key = key_of(call)
        part, told = self._parts[key], self._told.get(key, {})
        found = [self._halts.address(part.halt)]
        for _, _, channel in call.reads:
            inbox = part.inboxes.get(channel.number)
            found += [0, 0, 0] if inbox is None else self._inboxes.place(inbox)
        sent = {send.channel.number for send in call.sent}
        for send, size in zip(call.sends, nbytes, strict=True):
            if send.channel.number not in sent:
                found += [0, 0, 0]
                continue
            rank, inbox = told[send.channel.number]
            if rank != send.channel.rank or inbox.nbytes != size:
                raise CallFailed(f"what `{call.loop}` hands to rank {send.channel.rank} is not what is read there")
            base = self._outside.address(rank)
            found += [base + inbox.data, base + inbox.number, inbox.start]
        return found

    def ride(self, call: LoopCall, upto: int) -> None:
        """Iterations up to this are about to be launched here."""
        key = key_of(call)
        if call.leads:
            for rank in call.peers:
                self._outside.ridden(rank, key, upto)
        else:
            self.rides.launched(key, upto)

    def may_leave(self, call: LoopCall) -> bool:
        """Whether a run that is held needs nothing of this part any more."""
        key = key_of(call)
        return call.leads or key not in self._parts or (call.run in self._resting and not self.rides.waits(key))

    def owes(self, call: LoopCall) -> bool:
        """Whether its leader has launched what is to be launched here yet: devices wait for it."""
        return not call.leads and self.rides.waits(key_of(call))

    def end(self, call: LoopCall, mark: Any, *, halt: bool) -> None:
        """It has no row any more and will have none. `mark`: behind what is under way, None where nothing is. `halt`:
        what is under way may end as it likes."""
        part = self._parts.get(key_of(call))
        if part is None or any(part is one for _, one in self._ending):
            return
        if halt:
            self._halts.set(part.halt)
        self._ending.append((mark, part))

    def cancel(self, run: str, mark: Any) -> None:
        """Take a run out for good. `mark`: behind what is under way, None where nothing is."""
        self._out[run] = None
        if len(self._out) > _REMEMBERED:
            self._out.popitem(last=False)
        for key, part in list(self._parts.items()):
            if key.run == run and not part.over:
                self._halts.set(part.halt)
                self.end(part.call, mark, halt=True)
        for key in [key for key in self._told if key.run == run and key not in self._parts]:
            for rank in {rank for rank, _ in self._told.pop(key).values()}:
                self._outside.left(rank, key)
        self.rides.drop(run)
        self._gone = {key: ranks for key, ranks in self._gone.items() if key.run != run}
        self.release(run)

    def halt(self, run: str) -> None:
        """Let nothing of a run wait any more; from any thread."""
        for key, part in list(self._parts.items()):
            if key.run == run:
                self._halts.set(part.halt)

    def hold(self, run: str) -> None:
        """The run's leading parts launch nothing more, until `release`."""
        self._held.add(run)
        ranks = {rank for key, part in self._parts.items() if key.run == run and part.call.leads
                 for rank in part.call.peers}  # fmt: skip
        for rank in sorted(ranks):
            self._outside.rested(rank, run)

    def release(self, run: str) -> None:
        self._resting.discard(run)
        self._held.discard(run)

    def poll(self) -> bool:
        """Go on with what has ended; true if an inbox was given back."""
        ending, self._ending = self._ending, []
        freed = False
        for mark, part in ending:
            if mark is not None and not mark.query():
                self._ending.append((mark, part))
                continue
            part.over = True
            key = key_of(part.call)
            self._told.pop(key, None)
            for rank in {send.channel.rank for send in part.call.sent}:
                self._outside.left(rank, key)
            freed |= self._over(key, part)
        return freed

    # ── what peers say ──

    def told(self, rank: Rank, key: Key, inboxes: Sequence[Inbox]) -> None:
        if key.run in self._out:
            self._outside.left(rank, key)
        else:
            self._told.setdefault(key, {}).update({inbox.channel: (rank, inbox) for inbox in inboxes})

    def ridden(self, key: Key, upto: int) -> bool:
        """True if it is of a run that is held here: its part may have no row."""
        # Who launches doesn't rest: its word was of an earlier hold.
        self._resting.discard(key.run)
        if key in self._parts and key.run not in self._out:
            self.rides.add(key, upto)
        return key.run in self._held

    def rested(self, run: str) -> None:
        if run not in self._out:
            self._resting.add(run)

    def left(self, rank: Rank, key: Key) -> bool:
        """True if an inbox was given back."""
        part = self._parts.get(key)
        if part is None:
            if key.run not in self._out:
                self._gone.setdefault(key, set()).add(rank)
            return False
        part.left.add(rank)
        return self._over(key, part)

    def gone(self, rank: Rank) -> bool:
        """A peer is no more: whoever waits for it waits in vain."""
        freed = False
        for key, part in list(self._parts.items()):
            if rank in part.call.peers:
                self._halts.set(part.halt)
                freed |= self.left(rank, key)
        return freed

    def _over(self, key: Key, part: _Part) -> bool:
        if not part.over or not {channel.rank for channel in part.call.used} <= part.left:
            return False
        del self._parts[key]
        self._take_back(part.halt, part.inboxes, part.call.times)
        return True

    def _take_back(self, halt: int | None, inboxes: dict[int, Inbox], times: int = 0) -> None:
        if halt is not None:
            self._halts.give(halt)
        for inbox in inboxes.values():
            self._inboxes.give(inbox, times)

    @property
    def parts(self) -> list[LoopCall]:
        """That hold something here."""
        return [part.call for part in self._parts.values()]
