"""The twin of flags between devices, on CPUs: two threads that share memory."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.support.device_memory import SharedMemory
from tests.support.ping_pong import Player
from walkgraph.layers.peer import FLAG_BYTES, Halt, PeerBuffer, send, signal, wait
from walkgraph.memory.device import Unavailable

CPU = torch.device("cpu")


def number(value: int) -> torch.Tensor:
    return torch.tensor([value])


@pytest.fixture
def players() -> Iterator[tuple[Player, Player]]:
    both = Player("cpu", 64), Player("cpu", 64)
    both[0].meet(*both[1].told())
    both[1].meet(*both[0].told())
    yield both
    for one in both:
        one.leave()
    for one in both:
        one.part()


def test_values_go_to_and_fro_in_step(players: tuple[Player, Player]) -> None:
    for first, player in zip((True, False), players, strict=True):
        player.prepare(first, False)
    with ThreadPoolExecutor(2) as threads:
        mine, theirs = [one.result() for one in [threads.submit(player.play, 50) for player in players]]
    assert mine == theirs + 1 == 100
    assert not any(player.given_up() for player in players)


def test_a_wait_for_a_peer_that_is_gone_gives_up(players: tuple[Player, Player]) -> None:
    here, _ = players
    here.prepare(True, False)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(here.launch, 3)
        here.halt.set()
        waiting.result(timeout=10)
    assert here.given_up()
    here.halt.clear()
    assert not here.given_up()


def test_what_is_halted_sends_no_signal_and_a_flag_that_is_there_is_seen() -> None:
    flag, halt = number(0), Halt(CPU)
    signal(flag, number(3), halt)
    assert flag.item() == 3
    halt.set()
    assert halt.is_set
    signal(flag, number(4), halt)
    assert flag.item() == 3
    wait(flag, number(2), halt)
    wait(flag, number(4), halt)
    halt.clear()
    signal(flag, number(4), halt)
    assert flag.item() == 4


def test_a_wait_tells_whether_it_gave_up() -> None:
    flag, halt = number(3), Halt(CPU)
    halt.word.fill_(1)
    wait(flag, number(3), halt)
    assert not halt.given_up.item(), "it had come before"
    wait(flag, number(4), halt)
    assert halt.given_up.item()


def test_a_buffer_is_carved_alike_on_both_sides() -> None:
    memory = SharedMemory()
    own = PeerBuffer(memory, 1024)
    seen = PeerBuffer(memory, 1024, own.handle)
    value = torch.arange(6, dtype=torch.bfloat16).view(2, 3)
    send(value, seen.tensor(256, (2, 3), torch.bfloat16), seen.flag(FLAG_BYTES), number(9), Halt(CPU))
    assert torch.equal(own.tensor(256, (2, 3), torch.bfloat16), value)
    assert (own.flag(FLAG_BYTES).item(), own.flag(0).item()) == (9, 0)
    seen.close()
    own.close()
    assert memory.opened == 0


def test_what_lies_outside_or_between_is_refused() -> None:
    buffer, halt = PeerBuffer(SharedMemory(), 256), Halt(CPU)
    for offset, count in ((256, 1), (-16, 4), (8, 4), (128, 33)):
        with pytest.raises(ValueError, match="don't lie"):
            buffer.tensor(offset, (count,), torch.float32)
    with pytest.raises(ValueError, match="multiple"):
        buffer.flag(16)
    with pytest.raises(ValueError, match="not what lies there"):
        send(torch.zeros(4), buffer.tensor(0, (5,), torch.float32), buffer.flag(128), number(1), halt)
    with pytest.raises(Unavailable):
        PeerBuffer(SharedMemory(closed=True), 256, buffer.handle)
    buffer.close()
