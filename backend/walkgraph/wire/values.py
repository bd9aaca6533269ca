"""Values between processes: small ones, encoded media, tensors inline or as tickets, lists, mappings, conversations."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from walkgraph.graph.conversation import Role
from walkgraph.ids import Rank
from walkgraph.wire.watching import Message


class Absent(Message, frozen=True, tag="absent"):
    """A value that is explicitly absent: from a skipped use, or a finished stream."""


class Small(Message, frozen=True, tag="small"):
    value: str | bool | int | float


class Blob(Message, frozen=True, tag="blob"):
    """Encoded media."""

    data: bytes


class TensorHeader(Message, frozen=True):
    dtype: Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    shape: tuple[int, ...]


class InlineTensor(TensorHeader, frozen=True, tag="tensor"):
    data: bytes
    """In the service, of a posted tensor: a read-only view of bytes."""


class Ticket(TensorHeader, frozen=True, tag="ticket"):
    """`nbytes` at `offset` of the sender's arena; the receiver answers `Freed(ticket=id)` once it has taken it."""

    id: int
    owner: Rank
    transport: str
    """Name of the sender's transport."""
    offset: int
    nbytes: int


class Posted(Message, frozen=True, tag="posted"):
    """A large value of an output on its way to the service, which gets its bytes in a file of memory."""

    sender: str
    number: int
    """Counts what the sender has posted."""
    nbytes: int
    ends: bytes = b""
    """A digest of the bytes at its ends, where replicas of ranks are chosen by what they have read."""
    header: TensorHeader | None = None
    """None for encoded media."""


class Many(Message, frozen=True, tag="many"):
    """A list, for values of different shapes."""

    items: tuple["Value", ...]


class Named(Message, frozen=True, tag="named"):
    """A mapping: the tensors of a state."""

    items: dict[str, "Value"]


class Part(Message, frozen=True, tag="part"):
    modality: str
    value: "Value"


class ToolCall(Message, frozen=True):
    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class Turn(Message, frozen=True):
    role: Role
    parts: tuple[Part, ...]
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Conversation(Message, frozen=True, tag="conversation"):
    turns: tuple[Turn, ...]
    tools: tuple[str, ...] = ()
    call: str | None = None


Value = Absent | Small | Blob | InlineTensor | Ticket | Posted | Many | Named | Conversation


def leaves(value: Value) -> Iterator[Value]:
    """Each value in this one that holds no others."""
    match value:
        case Many():
            for item in value.items:
                yield from leaves(item)
        case Named():
            for item in value.items.values():
                yield from leaves(item)
        case Conversation():
            for turn in value.turns:
                for part in turn.parts:
                    yield from leaves(part.value)
        case _:
            yield value


def any_posted(values: Iterable[Value]) -> bool:
    return any(isinstance(leaf, Posted) for value in values for leaf in leaves(value))


def leaves_changed(value: Value, change: Callable[[Value], Value]) -> Value:
    """The value with `change` applied to each value in it that holds no others; the same object if none changes."""
    match value:
        case Many():
            items = tuple(leaves_changed(item, change) for item in value.items)
            return value if _same(items, value.items) else Many(items=items)
        case Named():
            named = {name: leaves_changed(item, change) for name, item in value.items.items()}
            return value if _same(named.values(), value.items.values()) else Named(items=named)
        case Conversation():
            turns = tuple(_turn_changed(turn, change) for turn in value.turns)
            return value if _same(turns, value.turns) else msgspec.structs.replace(value, turns=turns)
        case _:
            return change(value)


def _turn_changed(turn: Turn, change: Callable[[Value], Value]) -> Turn:
    parts = tuple(Part(modality=part.modality, value=leaves_changed(part.value, change)) for part in turn.parts)
    if _same((part.value for part in parts), (part.value for part in turn.parts)):
        return turn
    return msgspec.structs.replace(turn, parts=parts)


def _same(found: Iterable[object], given: Iterable[object]) -> bool:
    return all(one is other for one, other in zip(found, given, strict=True))
