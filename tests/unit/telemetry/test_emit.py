"""Events leave in numbered packets; events lost to a slow reader are counted, never waited for."""

import random
from dataclasses import dataclass, field

import msgspec
import pytest

from walkgraph.ids import Rank, RunId
from walkgraph.telemetry import events as e
from walkgraph.telemetry.emit import CAPACITY, CAPACITY_BYTES, INTERVAL, PACKET_BYTES, Buffered, Off, weight
from walkgraph.wire.watching import Level


@dataclass
class Reader:
    takes: bool = True
    packets: list[e.Packet] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def send(self, frame: bytes) -> bool:
        if self.takes:
            self.packets.append(e.decode(frame))
            self.sizes.append(len(frame))
        return self.takes

    @property
    def events(self) -> list[e.Any]:
        return [event for packet in self.packets for event in packet.events]


def buffered(reader: Reader, level: Level = "summary") -> Buffered:
    return Buffered("d", "rank 0.1", level, reader.send)


def phase(number: int) -> e.RunPhase:
    return e.RunPhase(run=RunId(f"r{number}"), task="t", phase="started", at=float(number))


def sample(nbytes: int) -> e.Sample:
    return e.Sample(
        why="tap", tap="t", run=RunId("r"), rank=Rank(0), walk="w", step=0, source="a.b", iteration=(), at=0.0,
        modality="image", dtype="uint8", shape=(), preview=e.MediaPreview(data=bytes(nbytes), nbytes=nbytes),
    )  # fmt: skip


def launch(rows: int) -> e.Launch:
    return e.Launch(
        rank=Rank(0), number=1, loop="decode", nodes=("embed", "blocks", "head"), uses=("embed", "blocks", "head"),
        count=64, pages_free=1_000_000, ready=(1e6 + 0.05,) * rows,
        runs=tuple(RunId(f"run_{row:020}") for row in range(rows)), walks=("speak_and_listen",) * rows,
        steps=(3,) * rows, outer=((100_000, 7),) * rows, first=(70_000,) * rows,
        taken=1e6 + 0.1, launched=1e6 + 0.2, started=1e6 + 0.3, finished=1e6 + 0.4,
    )  # fmt: skip


def test_events_are_numbered_without_gaps() -> None:
    reader = Reader()
    emitter = buffered(reader)
    sent = 0
    for round_number in range(3):
        for _ in range(1500 + round_number):
            emitter.emit(phase(sent))
            sent += 1
        emitter.flush(round_number, force=True)
    expected = 0
    for packet in reader.packets:
        assert packet.first == expected
        expected += len(packet.events)
    assert reader.events == [phase(number) for number in range(sent)]
    assert emitter.dropped == 0


def test_what_changes_is_gathered_from_the_first_change_on() -> None:
    reader = Reader()
    emitter = buffered(reader)
    emitter.flush(10.0)
    emitter.emit(phase(0))
    assert emitter.wait(10.001) == pytest.approx(INTERVAL), "a turn without events begins nothing"
    emitter.flush(10.001)
    for number in (1, 2):
        emitter.emit(phase(number))
        emitter.flush(10.001 + INTERVAL / 2)
    assert reader.packets == []
    assert emitter.wait(10.001 + INTERVAL / 2) == pytest.approx(INTERVAL / 2)
    emitter.flush(10.001 + INTERVAL + 1e-6)
    assert [len(packet.events) for packet in reader.packets] == [3]
    assert emitter.wait(11.0) is None
    emitter.flush(11.0, force=True)
    assert len(reader.packets) == 1, "nothing to tell is not told"
    emitter.emit(phase(3))
    emitter.flush(12.0)
    assert len(reader.packets) == 1, "after a quiet period too"


def test_a_flush_may_be_forced() -> None:
    reader = Reader()
    emitter = buffered(reader)
    for number in range(2):
        emitter.emit(phase(number))
        emitter.flush(10.0, force=True)
    assert [len(packet.events) for packet in reader.packets] == [1, 1]


def test_a_reader_that_takes_nothing_costs_a_count_that_it_later_sees() -> None:
    reader = Reader(takes=False)
    emitter = buffered(reader)
    for number in range(5):
        emitter.emit(phase(number))
        emitter.flush(number, force=True)
    assert emitter.dropped == 5
    reader.takes = True
    emitter.emit(phase(9))
    emitter.flush(10, force=True)
    assert (reader.packets[0].first, reader.packets[0].dropped) == (5, 5)


def test_the_buffer_is_bounded_by_events() -> None:
    reader = Reader()
    emitter = buffered(reader)
    for number in range(CAPACITY + 10):
        emitter.emit(phase(number))
    assert emitter.dropped == 10
    emitter.flush(1, force=True)
    assert len(reader.events) == CAPACITY


def test_the_buffer_is_bounded_by_bytes_and_has_room_again_once_it_was_sent() -> None:
    reader = Reader()
    emitter = buffered(reader)
    most = CAPACITY_BYTES // weight(sample(60_000))
    for _ in range(most + 3):
        emitter.emit(sample(60_000))
    assert emitter.dropped == 3
    emitter.flush(1, force=True)
    emitter.emit(sample(60_000))
    emitter.flush(2, force=True)
    assert len(reader.events) == most + 1
    assert emitter.dropped == 3


def test_packets_stay_within_what_readers_take() -> None:
    reader, draw = Reader(), random.Random(5)
    emitter = buffered(reader, "full")
    told: list[e.Any] = []
    for round_number in range(20):
        while emitter.dropped == 0 and len(told) < 30 * (round_number + 1):
            told.append(draw.choice([launch(draw.randrange(1, 300)), sample(draw.randrange(60_000)), phase(1)]))
            emitter.emit(told[-1])
        emitter.flush(round_number, force=True)
    assert reader.events == told
    assert max(reader.sizes) <= PACKET_BYTES + 64 * 1024
    assert len(reader.sizes) > 20


def test_an_event_that_no_reader_takes_is_lost_alone() -> None:
    reader = Reader()
    emitter = buffered(reader)
    long = msgspec.structs.replace(phase(1), task="t" * (e.MAX_BYTES + 1))
    for one in (phase(0), long, phase(2)):
        emitter.emit(one)
    emitter.flush(1, force=True)
    assert [packet.first for packet in reader.packets] == [0, 2]
    assert reader.events == [phase(0), phase(2)]
    assert emitter.dropped == 1


@pytest.mark.parametrize("event", [launch(1), launch(32), launch(300), phase(3), sample(0), sample(50_000)])
def test_the_weight_of_an_event_is_no_less_than_its_bytes(event: e.Any) -> None:
    assert len(msgspec.msgpack.encode(event)) <= weight(event)


def test_off_tells_only_what_was_asked_for() -> None:
    reader = Reader()
    emitter = buffered(reader, "off")
    emitter.emit(phase(0))
    emitter.emit(sample(1))
    emitter.flush(1, force=True)
    emitter.set_level("full")
    emitter.emit(phase(1))
    emitter.flush(2, force=True)
    emitter.set_level("off")
    emitter.emit(phase(2))
    emitter.flush(3, force=True)
    assert reader.events == [sample(1), phase(1)]
    assert emitter.dropped == 0


def test_where_nobody_listens_nothing_is_held() -> None:
    emitter = Off()
    emitter.set_level("full")
    emitter.emit(phase(0))
    emitter.flush(0, force=True)
    assert (emitter.level, emitter.dropped, emitter.wait(1.0), emitter.gather(1.0)) == ("off", 0, None, 0.0)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x80\x04K\x01.", b"\xff" * 10, b"\x00" * (e.MAX_BYTES + 1)],
    ids=["empty", "pickle", "no msgpack", "too long"],
)
def test_a_frame_that_is_no_packet_is_refused(frame: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        e.decode(frame)
