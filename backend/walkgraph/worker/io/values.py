"""Converts between a worker's values and values on the wire: texts, numbers and small tensors go inside the message,
the rest as tickets, or posted to the service."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import Conversation, ToolCall, Turn, TurnPart
from walkgraph.memory.tensors import tensor_of
from walkgraph.transports.base import dtype_name
from walkgraph.wire import messages as m
from walkgraph.wire.processes.posting import POST_BYTES
from walkgraph.wire.tensors import check_header
from walkgraph.worker.events import ABSENT

INLINE_BYTES = 4096
"""Tensors up to this size are cheaper inside the message than with a ticket and its `Freed`."""
MAX_DEPTH = 8
"""The deepest nesting of lists and mappings."""


Post = Callable[[memoryview, m.TensorHeader | None], m.Posted | None]
"""Takes the bytes of encoded media, or of the tensor with this header; None: they go inside the message."""


class TransportFull(Exception):
    """The transport is full, and nothing was put. Try again after a `Freed`."""


def pack(
    value: Any,
    put: Callable[[Tensor], m.Ticket | None] | None = None,
    take_back: Callable[[m.Ticket], None] = lambda ticket: None,
    post: Post | None = None,
) -> m.Value:
    """Pack a value. `put` takes larger tensors to a transport, `post` takes large bytes to the service; None: all go
    inside the message. Raises TransportFull, and InvalidInput for a value that can't be sent."""
    outlets = _Outlets(put, post, [])
    try:
        return _pack(value, outlets, 0)
    except Exception:
        for ticket in outlets.tickets:
            take_back(ticket)
        raise


def size(value: Any) -> int:
    """Bytes of an unpacked value: of its tensors, texts and media."""
    if isinstance(value, Mapping):
        return sum(map(size, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Conversation):
        return sum(size(part.value) for turn in value.turns for part in turn.parts)
    if isinstance(value, Sequence):
        return sum(map(size, cast("Sequence[Any]", value)))
    return int(getattr(value, "nbytes", 0))


def unpack(
    value: m.Value,
    get: Callable[[m.Ticket], Tensor] | None = None,
    opened: Callable[[m.Posted], m.Value] | None = None,
) -> Any:
    """Unpack a value. `get` reads tickets, `opened` posted values; None: there must be none. Raises InvalidInput, or
    what they raise."""
    match value:
        case m.Absent():
            return ABSENT
        case m.Small():
            return value.value
        case m.Blob():
            return value.data
        case m.InlineTensor():
            return _inline(value)
        case m.Ticket():
            if get is None:
                raise InvalidInput("a tensor's ticket is not accepted here; send its bytes")
            return get(value)
        case m.Posted():
            if opened is None:
                raise InvalidInput("a posted value is not accepted here; send its bytes")
            return unpack(opened(value))
        case m.Many():
            return [unpack(item, get, opened) for item in value.items]
        case m.Named():
            return {name: unpack(item, get, opened) for name, item in value.items.items()}
        case m.Conversation():
            turns = tuple(_unpacked_turn(turn, lambda part: unpack(part, get, opened)) for turn in value.turns)
            return Conversation(turns, value.tools, value.call)


def _unpacked_turn(turn: m.Turn, unpacked: Callable[[m.Value], Any]) -> Turn:
    parts = tuple(TurnPart(part.modality, unpacked(part.value)) for part in turn.parts)
    calls = tuple(ToolCall(call.id, call.name, call.arguments) for call in turn.tool_calls)
    return Turn(turn.role, parts, calls, turn.tool_call_id)


def tickets_in(value: m.Value) -> list[m.Ticket]:
    """All tickets, in the order in which `unpack` reads them."""
    match value:
        case m.Ticket():
            return [value]
        case m.Many():
            return [ticket for item in value.items for ticket in tickets_in(item)]
        case m.Named():
            return [ticket for item in value.items.values() for ticket in tickets_in(item)]
        case m.Conversation():
            return [ticket for turn in value.turns for part in turn.parts for ticket in tickets_in(part.value)]
        case _:
            return []


class _Outlets(NamedTuple):
    """Takes the bytes of a value that don't go inside its message."""

    put: Callable[[Tensor], m.Ticket | None] | None
    post: Post | None
    tickets: list[m.Ticket]
    """The value that was put."""


def _pack(value: Any, outlets: _Outlets, depth: int) -> m.Value:
    if value is ABSENT or value is None:
        return m.Absent()
    if isinstance(value, bool | int | float | str):
        return m.Small(value=value)
    if isinstance(value, bytes):
        posted = outlets.post(memoryview(value), None) if outlets.post and len(value) >= POST_BYTES else None
        return posted or m.Blob(data=value)
    if isinstance(value, Tensor):
        return _tensor(value.detach(), outlets)
    if depth == MAX_DEPTH:
        raise InvalidInput(f"a value nests lists more than {MAX_DEPTH} deep; flatten it")
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return m.Named(items={str(name): _pack(item, outlets, depth + 1) for name, item in items})
    if isinstance(value, Conversation):
        turns = tuple(_packed_turn(turn, outlets, depth) for turn in value.turns)
        return m.Conversation(turns=turns, tools=value.tools, call=value.call)
    if isinstance(value, Sequence):
        return m.Many(items=tuple(_pack(item, outlets, depth + 1) for item in cast(Sequence[Any], value)))
    raise InvalidInput(
        f"a value of type `{type(value).__name__}` can't leave its rank; make it a tensor, text or number"
    )


def _packed_turn(turn: Turn, outlets: _Outlets, depth: int) -> m.Turn:
    parts = tuple(m.Part(modality=p.modality, value=_pack(p.value, outlets, depth + 1)) for p in turn.parts)
    calls = tuple(m.ToolCall(id=call.id, name=call.name, arguments=call.arguments) for call in turn.tool_calls)
    return m.Turn(role=turn.role, parts=parts, tool_calls=calls, tool_call_id=turn.tool_call_id)


def _tensor(value: Tensor, outlets: _Outlets) -> m.Value:
    name = dtype_name(value.dtype)
    # Bytes on a device can't be put into a message without waiting for the device.
    if outlets.put is not None and (value.nbytes > INLINE_BYTES or value.device.type != "cpu"):
        ticket = outlets.put(value)
        if ticket is None:
            raise TransportFull
        outlets.tickets.append(ticket)
        return ticket
    shape = tuple(value.shape)
    flat = value.cpu().contiguous().view(-1)
    data = flat.view(torch.uint8).numpy().data if value.numel() else memoryview(b"")
    if outlets.post is not None and len(data) >= POST_BYTES:
        posted = outlets.post(data, m.TensorHeader(dtype=name, shape=shape))
        if posted is not None:
            return posted
    return m.InlineTensor(dtype=name, shape=shape, data=data.tobytes())


def _inline(value: m.InlineTensor) -> Tensor:
    check_header(value, len(value.data))
    raw = np.frombuffer(value.data, np.uint8)
    # What may be written to is this process's own memory already.
    return tensor_of(raw if raw.flags.writeable else raw.copy(), value.dtype, value.shape)
