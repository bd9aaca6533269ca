"""Events leave in numbered packets; what a slow reader costs is counted, never waited for."""

from dataclasses import dataclass, field

import msgspec
import pytest

from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import CAPACITY, INTERVAL, PACKET_EVENTS, Buffered, Level, Off


@dataclass
class Reader:
    takes: bool = True
    packets: list[e.Packet] = field(default_factory=list)

    def send(self, frame: bytes) -> bool:
        if self.takes:
            self.packets.append(e.decode(frame))
        return self.takes


def buffered(reader: Reader, level: Level = "full") -> Buffered:
    return Buffered("d", "rank 0.1", level, reader.send)


def span(number: int, node: str = "n", run: str = "r") -> e.CallSpan:
    return e.CallSpan(
        run=RunId(run), rank=Rank(0), walk="w", node=node, step=0, iteration=(number,), ready=number,
        launched=number + 1, finished=number + 3, batch=number + 1, batch_number=number,
    )  # fmt: skip


def test_events_are_numbered_without_gaps() -> None:
    reader = Reader()
    emitter = buffered(reader)
    for round_number in range(3):
        for number in range(PACKET_EVENTS + 1):
            emitter.call(span(number))
        emitter.flush(round_number, force=True)
    expected = 0
    for packet in reader.packets:
        assert packet.first == expected
        expected += len(packet.events)
    assert expected == 3 * (PACKET_EVENTS + 1)
    assert emitter.dropped == 0


def test_packets_are_sent_at_intervals_unless_forced() -> None:
    reader = Reader()
    emitter = buffered(reader)
    emitter.flush(10.0)
    for _ in range(2):
        emitter.call(span(0))
        emitter.flush(10.0 + INTERVAL / 2)
    assert not reader.packets
    emitter.flush(10.0 + INTERVAL / 2, force=True)
    assert [len(packet.events) for packet in reader.packets] == [2]
    emitter.flush(11.0)
    assert len(reader.packets) == 1, "nothing to tell is not told"


def test_a_reader_that_takes_nothing_costs_a_count_that_it_later_sees() -> None:
    reader = Reader(takes=False)
    emitter = buffered(reader)
    for number in range(5):
        emitter.call(span(number))
        emitter.flush(number, force=True)
    assert emitter.dropped == 5
    reader.takes = True
    emitter.call(span(9))
    emitter.flush(10)
    assert (reader.packets[0].first, reader.packets[0].dropped) == (5, 5)


def test_the_buffer_is_bounded() -> None:
    reader = Reader()
    emitter = buffered(reader)
    for number in range(CAPACITY + 10):
        emitter.call(span(number))
    assert emitter.dropped == 10
    emitter.flush(1)
    assert sum(len(packet.events) for packet in reader.packets) == CAPACITY


def test_the_summary_folds_calls_by_run_and_node() -> None:
    reader = Reader()
    emitter = buffered(reader, "summary")
    for number in range(4):
        emitter.call(span(number))
    emitter.call(span(7, node="other"))
    emitter.flush(1)
    first, second = reader.packets[0].events
    assert isinstance(first, e.Activity)
    assert isinstance(second, e.Activity)
    assert (first.node, first.calls, first.busy, first.queued) == ("n", 4, 8.0, 4.0)
    assert (first.iteration, first.launched, first.finished, first.batch) == ((3,), 1, 6, 4)
    assert (second.node, second.calls) == ("other", 1)


def test_the_summary_counts_the_calls_of_a_span_and_their_share_of_it() -> None:
    reader = Reader()
    emitter = buffered(reader, "summary")
    emitter.call(span(0), calls=6, share=0.75)
    emitter.call(span(1))
    emitter.flush(1)
    [told] = reader.packets[0].events
    assert isinstance(told, e.Activity)
    assert (told.calls, told.busy, told.queued) == (7, 3.5, 1.75)


def test_what_has_begun_is_told_unless_it_ended_before() -> None:
    begun = folded(0, 1)
    reader = Reader()
    emitter = buffered(reader, "summary")
    emitter.call(span(0, node="n0"))
    for one in begun:
        emitter.begin(msgspec.structs.replace(one, calls=0))
    emitter.call(span(1, node="n1"))
    emitter.flush(1)
    told = [(one.node, one.calls) for one in reader.packets[0].events if isinstance(one, e.Activity)]
    assert told == [("n0", 1), ("n1", 1), ("n0", 0)]
    full = buffered(reader)
    full.begin(begun[0])
    full.flush(2, force=True)
    assert len(reader.packets) == 1


def folded(*numbers: int) -> list[e.Activity]:
    reader = Reader()
    emitter = buffered(reader, "summary")
    for number in numbers:
        emitter.call(span(number, node=f"n{number}"))
    emitter.flush(1)
    return [one for one in reader.packets[0].events if isinstance(one, e.Activity)]


def test_off_does_nothing() -> None:
    emitter = Off()
    emitter.call(span(0))
    emitter.emit(span(0))
    emitter.flush(0, force=True)
    assert emitter.level is None
    assert emitter.dropped == 0


@pytest.mark.parametrize("frame", [b"", b"\x80\x04K\x01.", b"\xff" * 10, b"\x00" * (e.MAX_BYTES + 1)])
def test_a_frame_that_is_no_packet_is_refused(frame: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        e.decode(frame)
