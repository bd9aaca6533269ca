"""Messages that wait together travel as one frame, in their order; a frame with one that is none is refused whole."""

import pytest

from walkgraph.ids import RunId
from walkgraph.wire import codec
from walkgraph.wire import messages as m


def aborts(count: int) -> list[m.ToConductor]:
    return [m.Abort(run=RunId(f"{number:032x}")) for number in range(count)]


def frames(messages: list[m.ToConductor]) -> list[bytes]:
    found, waiting = [], [codec.encode(message) for message in messages]
    while waiting:
        count, frame = codec.together(waiting)
        found.append(frame)
        del waiting[:count]
    return found


@pytest.mark.parametrize("count", [1, 2, 15, 16, 255, 256, 257, 1000])
def test_all_come_in_their_order_in_few_frames(count: int) -> None:
    sent = aborts(count)
    packed = frames(sent)
    assert [message for frame in packed for message in codec.to_conductor.decode_all(frame)] == sent
    assert len(packed) == -(-count // codec.MOST_TOGETHER)


def test_one_alone_is_as_it_was() -> None:
    (message,) = aborts(1)
    assert frames([message]) == [codec.encode(message)]
    assert codec.to_conductor.decode(codec.encode(message)) == message


def test_large_ones_go_alone_and_small_ones_only_as_far_as_they_fit() -> None:
    def submit(nbytes: int) -> m.Submit:
        inputs: dict[str, tuple[m.Value, ...]] = {"a": (m.Blob(data=bytes(nbytes)),)}
        return m.Submit(run=RunId("r"), task="t", params={}, inputs=inputs)

    half = codec.BYTES_TOGETHER // 2
    sent: list[m.ToConductor] = [submit(10), submit(half), submit(half), submit(3 * half), submit(10)]
    packed = frames(sent)
    assert [len(codec.to_conductor.decode_all(frame)) for frame in packed] == [2, 1, 1, 1]
    assert [message for frame in packed for message in codec.to_conductor.decode_all(frame)] == sent


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x90\xc0",
        b"\xdc",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 10_000,
        b"\x92" + codec.encode(m.Stop()) + codec.encode(m.Ping(number=1)),
        b"\x91" + codec.encode(m.Stop()) + b"more",
    ],
)
def test_what_is_no_message_is_refused_with_its_frame(frame: bytes) -> None:
    with pytest.raises(codec.BadMessage):
        codec.to_conductor.decode_all(frame)
