"""Packets from the deployments reach the hub under their deployment's name, those that nobody should see don't."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.safety.plugin import Figure
from walkgraph.service.observe.hub import Hub
from walkgraph.service.observe.telemetry import FRAME_BYTES, Collector, ToHub
from walkgraph.telemetry import events
from walkgraph.wire import sockets

GAUGE = events.QueueGauge(at=1.0, running=1, waiting=0, reserved={}, budget={})


def packet(deployment: str, source: str = "conductor") -> bytes:
    return events.encode(
        events.Packet(deployment=deployment, source=source, first=0, dropped=0, wall=0.0, events=(GAUGE,))
    )


async def test_packets_become_frames_of_the_version_that_serves(tmp_path: Path) -> None:
    hub, collector = Hub(), Collector(tmp_path / "d")
    known = {"shapes v1": ("shapes", "v1"), "other": ("other", "")}
    collector.start(known.get, (ToHub(hub),))
    frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def send(text: str) -> None:
        frames.put_nowait(json.loads(text))

    reader = asyncio.create_task(hub.serve(send, None))
    assert (await frames.get())["type"] == "welcome"
    context: sockets.Context = zmq.Context()
    offer = sockets.offer(sockets.feed(context, collector.address))
    for data in (b"nothing", packet("shapes v2"), packet("shapes v1"), packet("other", "rank 0.1")):
        assert offer(data)
    first, second = await frames.get(), await frames.get()
    assert (first["type"], first["deployment"], first["source"]) == ("events", "shapes", "conductor v1")
    assert first["events"][0]["type"] == "queue"
    assert (second["deployment"], second["source"]) == ("other", "rank 0.1")
    assert collector.rejected == 1
    reader.cancel()
    context.destroy(linger=0)
    await collector.close()


async def test_a_packet_that_a_sink_can_not_take_ends_nothing(tmp_path: Path) -> None:
    taken: asyncio.Queue[str] = asyncio.Queue()

    class Picky:
        def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
            if packet.source == "bad":
                raise ValueError("columns of unequal length")

    class All:
        def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
            taken.put_nowait(packet.source)

    collector = Collector(tmp_path / "d")
    collector.start(lambda _label: ("shapes", "v1"), (Picky(), All()))
    context: sockets.Context = zmq.Context()
    offer = sockets.offer(sockets.feed(context, collector.address))
    for source in ("bad", "good", "bad"):
        assert offer(packet("shapes v1", source))
    assert [await taken.get() for _ in range(3)] == ["bad", "good", "bad"]
    assert collector.rejected == 2
    context.destroy(linger=0)
    await collector.close()


@pytest.mark.safety("S7")
async def test_garbage_on_the_services_socket_is_counted_and_harms_nothing(tmp_path: Path, figure: Figure) -> None:
    """Frames of pickle and noise, and packets cut short, as one that reached the 0700 directory could send them."""
    marker = tmp_path / "executed"
    pickled = b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."
    whole, chance, frames = packet("shapes v1"), random.Random(1), 1000
    taken: asyncio.Queue[str] = asyncio.Queue()

    class Sink:
        def take(self, packet: events.Packet, deployment: str, version: str, nbytes: int) -> None:
            taken.put_nowait(packet.source)

    collector = Collector(tmp_path / "d")
    collector.start(lambda _label: ("shapes", "v1"), (Sink(),))
    context: sockets.Context = zmq.Context()

    def send() -> None:
        sender = context.socket(zmq.PUSH)
        sender.connect(collector.address)
        for number in range(frames):
            kinds = (pickled, chance.randbytes(chance.randrange(200)), whole[: chance.randrange(len(whole))])
            sender.send_multipart([kinds[number % 3]] * (1 + number % 2))
        sender.send(packet("shapes v1", "the last"))
        sender.close(linger=-1)

    await asyncio.to_thread(send)
    assert await taken.get() == "the last"
    assert collector.rejected == frames
    assert not marker.exists()
    sockets.end(context)
    await collector.close()
    figure("frames refused on the service's socket", frames, at_least=1000)


async def test_a_large_packet_becomes_frames_that_are_numbered_on() -> None:
    hub, texts = Hub(), asyncio.Queue[str]()

    async def send(text: str) -> None:
        texts.put_nowait(text)

    reader = asyncio.create_task(hub.serve(send, "shapes"))
    await texts.get()
    told = tuple(msgspec.structs.replace(GAUGE, at=float(at)) for at in range(10))
    found = events.Packet(deployment="shapes v1", source="rank 0.1", first=5, dropped=2, wall=0.5, events=told)
    ToHub(hub).take(found, "shapes", "v1", FRAME_BYTES * 3)
    ToHub(hub).take(found, "other", "v1", FRAME_BYTES)
    frames = [json.loads(await texts.get()) for _ in range(3)]
    assert [(frame["first"], len(frame["events"])) for frame in frames] == [(5, 4), (9, 4), (13, 2)]
    assert [event["at"] for frame in frames for event in frame["events"]] == list(range(10))
    assert {(frame["dropped"], frame["wall"]) for frame in frames} == {(2, 0.5)}
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
