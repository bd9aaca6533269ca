"""Outputs of deterministic calls by content: where a call comes again, its outputs are given and it is not made.

    call ──> key ──> kept: its outputs at once
                └──> not kept: a batch ──> outputs, kept under the key

A call has a key if its node says `kept`, or the memo is for every node and this one runs on the host's processor, its
operator is `pure`, it has no states, its inputs are in host memory, and nothing that it reads is part of a stream. The
key is a digest of its inputs, its parameters, its operator with its weights, and the owner of its run unless the node
is `shared`; it holds no identity of an object, so that another plan finds what an earlier one has made.

A call that reads nothing of its run, without inputs and with literal parameters, gives the same in all runs. On the
host's processor it has a key wherever there is a memo, the same for all owners.

Outputs are kept in host memory. A device's are copied there beside its other work, and sent back when they are found.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, cast

from torch import Tensor

from walkgraph.abi.calls import Call, Outputs
from walkgraph.engine.calls.digests import digest_of
from walkgraph.engine.load import WARM_UP
from walkgraph.engine.loops.body import Loaded
from walkgraph.graph.conversation import Conversation

_OVERHEAD: Final = 512
"""Bytes that an entry counts for besides its values."""
_SIZE: Final = 32


Sharing = Literal["own", "shared"]
"""The runs that find what the calls of a node gave: those of the same owner, or all."""


class Memo:
    """Outputs by key, at most `limit` bytes of them; those that were not used for longest go first."""

    def __init__(self, limit: int, *, every: bool = True) -> None:
        """`every`: calls of all nodes are kept, not only of those that say so."""
        self.limit, self.every = limit, every
        self.bytes = 0
        self._entries: OrderedDict[bytes, tuple[Outputs, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: bytes) -> Outputs | None:
        """A copy of the outputs under this key, as a reader may hold them for long."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return _copied(entry[0])

    def keep(self, key: bytes, outputs: Outputs) -> None:
        """Keep a copy, unless it has a value of an unknown kind, or is too large. The values themselves may be views of
        memory that is written to later."""
        try:
            size = _size(outputs)
        except RecursionError:  # too deep
            return
        if size is None or size + _OVERHEAD > self.limit or key in self._entries:
            return
        self._entries[key] = _copied(outputs), size + _OVERHEAD
        self.bytes += size + _OVERHEAD
        while self.bytes > self.limit:
            self.bytes -= self._entries.popitem(last=False)[1][1]


class KeptCalls:
    """Finds the calls of one engine in a memo."""

    def __init__(
        self,
        memo: Memo,
        owner: Callable[[str], str],
        sharing: Mapping[str, Sharing],
        literal: Collection[str] = (),
    ) -> None:
        """`owner`: gives the owner of a run. `sharing`: by node; those without an entry are `own` where the memo is for
        every node and they run on the host's processor, and otherwise aren't kept. `literal`: nodes whose parameters
        are the same in all calls."""
        self._memo, self._owner, self._sharing, self._literal = memo, owner, sharing, literal
        self._keys: dict[str, bytes | None] = {}
        """Node -> the key of its calls that read nothing."""

    def find(self, loaded: Loaded, call: Call) -> Outputs | None:
        """The outputs of a call that was made before. Otherwise the call gets its key, if it can have one."""
        call.content = self._key(loaded, call)
        return None if call.content is None else self._memo.find(call.content)

    def note(self, call: Call, outputs: Outputs) -> None:
        """Keep the outputs of a call whose batch is done."""
        if call.content is not None:
            self._memo.keep(call.content, outputs if call.copies is None else call.copies)

    def _key(self, loaded: Loaded, call: Call) -> bytes | None:
        deterministic = loaded.operator.pure and not call.states and not call.chunks
        if not deterministic or call.run == WARM_UP:
            return None
        host = loaded.device.type == "cpu"
        if host and call.node in self._literal and not (call.inputs or call.links):
            if call.node not in self._keys:
                self._keys[call.node] = self._digest(loaded, call, None)
            return self._keys[call.node]
        sharing = self._sharing.get(call.node, "own" if host and self._memo.every else None)
        if sharing is None:
            return None
        return self._digest(loaded, call, self._owner(call.run) if sharing == "own" else None)

    def _digest(self, loaded: Loaded, call: Call, owner: str | None) -> bytes | None:
        params = sorted((name, value) for name, value in call.params.items() if name != "seed")
        made = blake2b(repr((owner, loaded.content, params)).encode(), digest_size=_SIZE)
        for port in sorted(call.inputs):
            digest = digest_of(call.inputs[port])
            if digest is None:
                return None
            made.update(repr(port).encode() + digest)
        return made.digest()


def _size(value: Any) -> int | None:
    """Bytes of a value; None if it can't be kept."""
    match value:
        case Tensor():
            return value.nbytes if value.device.type == "cpu" else None
        case str() | bytes():
            return len(value)
        case bool() | int() | float():
            return 8
        case Conversation():
            parts = [part.value for turn in value.turns for part in turn.parts]
            return None if any(isinstance(part, Tensor) for part in parts) else _sum(parts)
        case Mapping():
            return _sum(list(cast("Mapping[str, Any]", value).values()))
        case list():
            return _sum(cast("list[Any]", value))
        case tuple() if type(cast("object", value)) is tuple:
            return _sum(cast("tuple[Any, ...]", value))
        case _:
            return None


def _sum(values: Sequence[Any]) -> int | None:
    sizes = [_size(value) for value in values]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _copied(value: Any) -> Any:
    match value:
        case Tensor():
            return value.clone()
        case Mapping():
            return {name: _copied(one) for name, one in cast("Mapping[str, Any]", value).items()}
        case list():
            return [_copied(one) for one in cast("list[Any]", value)]
        case tuple():
            return tuple([_copied(one) for one in cast("tuple[Any, ...]", value)])
        case _:
            return value
