"""The links of shards: the first one tells what has come, and the others take that in place of what comes to
themselves."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from walkgraph.errors import ErrorInfo
from walkgraph.ids import Rank
from walkgraph.wire import messages as m
from walkgraph.wire.processes.posting import Lost
from walkgraph.wire.values import leaves_changed
from walkgraph.worker.events import ABSENT, Arrived, Send
from walkgraph.worker.io import values
from walkgraph.worker.io.links import FromPart, Links
from walkgraph.worker.io.reports import Reports
from walkgraph.worker.shards.broadcast import Broadcast, Receiver, ShardsApart

Arrival = Arrived | FromPart | tuple[str, ErrorInfo]


class FirstLinks(Links):
    """The links of a group's first shard."""

    _told: Broadcast | None = None

    def tell(self, told: Broadcast) -> None:
        """Tell other shards from now on."""
        self._told = told

    def messages(self) -> list[m.ToWorker]:
        found = [self._opened(message) for message in super().messages()]
        self._writer.messages(found)
        return found

    def arrivals(self) -> list[Arrival]:
        found = list(super().arrivals())
        self._writer.arrivals([_whole(one) for one in found if isinstance(one, Arrived)])
        return found

    def close(self) -> None:
        if self._told is not None:
            self._told.close()
        super().close()

    def _opened(self, message: m.ToWorker) -> m.ToWorker:
        """The message with its posted values inside: their files come to this process alone. One whose file is lost
        stays as it is, and can be read by no shard."""
        if self.post is None or not isinstance(message, m.Start | m.TaskAnswer | m.TaskPiece):
            return message
        open_ = self.post.opener(message.run)

        def opened(leaf: m.Value) -> m.Value:
            with suppress(Lost):
                return open_(leaf) if isinstance(leaf, m.Posted) else leaf
            return leaf

        match message:
            case m.Start():
                return replace(message, inputs=_changed(message.inputs, opened))
            case m.TaskAnswer():
                return replace(message, outputs=_changed(message.outputs, opened))
            case m.TaskPiece():
                return replace(message, value=leaves_changed(message.value, opened))

    @property
    def _writer(self) -> Broadcast:
        if self._told is None:
            raise ShardsApart("nothing tells the other shards of this rank")
        return self._told


class OtherLinks(Links):
    """The links of any other shard: nothing is sent, as the first one sends it."""

    _told: Receiver | None = None

    def listen(self, path: Path) -> None:
        """Take what the first shard tells, at this path."""
        self._told = Receiver(path)
        self.conductor = _Unsent(self.conductor.socket)

    @property
    def told(self) -> Receiver:
        if self._told is None:
            raise ShardsApart("this shard doesn't listen to the first one yet")
        return self._told

    def messages(self) -> list[m.ToWorker]:
        return self.told.messages()

    def arrivals(self) -> Iterator[Arrived]:
        for message in self.told.arrivals():
            value = message.value if isinstance(message, m.Deliver | m.StatePart | m.StreamItem) else None
            yield Arrived(message, None if value is None else values.unpack(value))

    def set_peers(self, peers: dict[Rank, m.Peer]) -> None: ...

    def send(self, send: Send, note: Any = None) -> None: ...

    def urge(self, rank: Rank, message: m.BetweenParts) -> None: ...

    def failures(self) -> Iterable[tuple[str, ErrorInfo]]:
        return ()

    def close(self) -> None:
        if self._told is not None:
            self._told.close()
        super().close()


class _Unsent(Reports):
    def send(self, message: m.FromWorker, value: Any = ABSENT) -> None: ...


def _changed(given: Mapping[str, m.Value], change: Callable[[m.Value], m.Value]) -> dict[str, m.Value]:
    return {name: leaves_changed(value, change) for name, value in given.items()}


def _whole(arrived: Arrived) -> m.BetweenWorkers:
    """The message of an arrival, with its value inside."""
    message = arrived.message
    if isinstance(message, m.Deliver | m.StatePart | m.StreamItem):
        return replace(message, value=values.pack(arrived.value))
    return message
