"""Values survive the wire; a value that can't be sent raises an error and leaves nothing behind."""

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from walkgraph.errors import InvalidInput
from walkgraph.graph.conversation import Conversation, ToolCall, Turn, TurnPart
from walkgraph.ids import Rank
from walkgraph.wire import codec
from walkgraph.wire import messages as m
from walkgraph.wire.tensors import ITEM_BYTES
from walkgraph.worker.events import ABSENT
from walkgraph.worker.io import values

DTYPES = [getattr(torch, name) for name in ITEM_BYTES]


class Store:
    """A transport that keeps tensors, up to a number."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.held: dict[int, torch.Tensor] = {}
        self.taken_back: list[int] = []

    def put(self, tensor: torch.Tensor) -> m.Ticket | None:
        if len(self.held) == self.room:
            return None
        number = len(self.held) + 1
        self.held[number] = tensor
        return m.Ticket(
            dtype="float32", shape=tuple(tensor.shape), id=number, owner=Rank(0), transport="shm", offset=0,
            nbytes=tensor.nbytes,
        )  # fmt: skip

    def get(self, ticket: m.Ticket) -> torch.Tensor:
        return self.held[ticket.id]

    def take_back(self, ticket: m.Ticket) -> None:
        self.taken_back.append(ticket.id)


tensors = st.builds(
    lambda shape, dtype: torch.randint(0, 2, shape).to(dtype),
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from(DTYPES),
)
scalars = st.one_of(
    st.text(max_size=20), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary()
)
trees = st.recursive(
    st.one_of(scalars, tensors, st.just(ABSENT)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@given(trees)
def test_values_come_back_as_they_were(value: Any) -> None:
    message = m.StreamItem(run=m.RunId("r"), stream=0, step=0, index=0, value=values.pack(value))
    read = codec.between_workers.decode(codec.encode(message))
    assert isinstance(read, m.StreamItem)
    assert same(value, values.unpack(read.value))


def test_a_conversation_comes_back_with_its_parts() -> None:
    store = Store(9)
    call = ToolCall("1", "look", "{}")
    asked = Turn("user", (TurnPart("text", "a"), TurnPart("image", b"x"), TurnPart("state", torch.zeros(2000))))
    answered = Turn("tool", (TurnPart("text", "b"),), (), "1")
    value = Conversation((asked, Turn("assistant", (), (call,)), answered), ("{}",), "look")
    packed = values.pack(value, store.put)
    message = codec.encode(m.StreamItem(run=m.RunId("r"), stream=0, step=0, index=0, value=packed))
    read = codec.between_workers.decode(message)
    assert isinstance(read, m.StreamItem)
    assert [ticket.nbytes for ticket in values.tickets_in(read.value)] == [8000]
    found = values.unpack(read.value, store.get)
    assert [turn.role for turn in found.turns] == ["user", "assistant", "tool"]
    assert found.turns[0].parts[:2] == asked.parts[:2]
    assert torch.equal(found.turns[0].parts[2].value, torch.zeros(2000))
    assert (found.turns[1:], found.tools, found.call) == (value.turns[1:], value.tools, value.call)
    assert values.size(value) == len("a") + len(b"x") + 8000 + len("b")


def test_small_tensors_ride_inside_and_large_ones_as_tickets() -> None:
    store = Store(9)
    small, large = torch.zeros(1024), torch.zeros(1025)
    assert small.nbytes == values.INLINE_BYTES
    packed = values.pack([small, {"x": large}], store.put)
    assert len(store.held) == 1
    assert [ticket.nbytes for ticket in values.tickets_in(packed)] == [4100]
    assert same(values.unpack(packed, store.get), [small, {"x": large}])
    with pytest.raises(InvalidInput):
        values.unpack(packed)


def test_without_room_nothing_stays_behind() -> None:
    store = Store(2)
    with pytest.raises(values.TransportFull):
        values.pack([torch.zeros(2000)] * 3, store.put, store.take_back)
    assert store.taken_back == [1, 2]


def test_the_receiver_owns_what_it_got() -> None:
    source = torch.zeros(4)
    got = values.unpack(values.pack(source))
    got += 1
    assert source.sum() == 0


@pytest.mark.parametrize("value", [object(), 1j, torch.zeros(2, dtype=torch.complex64), {1: object()}])
def test_what_cannot_travel_says_what_to_do(value: Any) -> None:
    with pytest.raises(InvalidInput, match="can't leave its rank"):
        values.pack(value)


def test_nesting_is_bounded() -> None:
    value: Any = 1
    for _ in range(20):
        value = [value]
    with pytest.raises(InvalidInput, match="flatten"):
        values.pack(value)


@given(st.sampled_from(sorted(ITEM_BYTES)), st.lists(st.integers(-3, 1 << 62), max_size=34), st.binary(max_size=64))
def test_headers_that_lie_are_refused(dtype: Any, shape: list[int], data: bytes) -> None:
    tensor = m.InlineTensor(dtype=dtype, shape=tuple(shape), data=data)
    try:
        found = values.unpack(tensor)
    except InvalidInput:
        return
    assert found.nbytes == len(data)
    assert list(found.shape) == shape


def test_an_unknown_dtype_is_no_message() -> None:
    good = codec.encode(
        m.StreamItem(run=m.RunId("r"), stream=0, step=0, index=0, value=values.pack(torch.zeros(2, dtype=torch.int16)))
    )
    with pytest.raises(codec.BadMessage):
        codec.between_workers.decode(good.replace(b"int16", b"int17"))
    assert isinstance(codec.between_workers.decode(good), msgspec.Struct)
