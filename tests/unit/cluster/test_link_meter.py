"""Links are measured by bytes that go over them, for who has the token."""

import itertools
import socket

import pytest

from walkgraph.cluster.link_meter import TOKEN_BYTES, LinkFailed, answer_once, measure

HERE = "127.0.0.1"
TOKEN = bytes(range(TOKEN_BYTES))


def test_a_link_has_a_latency_and_a_bandwidth() -> None:
    found = measure(HERE, answer_once(HERE, TOKEN), TOKEN)
    assert 0 < found.latency < 60
    assert found.bandwidth > 1


def test_what_is_measured_is_the_time_of_the_transfers() -> None:
    # Each look at the clock is a second later than the last one.
    ticks = itertools.count()
    found = measure(HERE, answer_once(HERE, TOKEN), TOKEN, lambda: float(next(ticks)))
    assert found.latency == 0.5
    assert found.bandwidth == 256 * 1024 / 0.5


@pytest.mark.parametrize("token", [bytes(TOKEN_BYTES), TOKEN[:-1] + b"x"])
def test_nobody_else_is_answered(token: bytes) -> None:
    with pytest.raises(LinkFailed, match=HERE):
        measure(HERE, answer_once(HERE, TOKEN), token)


def test_it_is_answered_once() -> None:
    port = answer_once(HERE, TOKEN)
    measure(HERE, port, TOKEN)
    with pytest.raises(LinkFailed):
        measure(HERE, port, TOKEN)


def test_a_host_that_is_not_reached_is_said() -> None:
    with socket.socket() as bound:
        bound.bind((HERE, 0))
        with pytest.raises(LinkFailed, match=r"the link to 127\.0\.0\.1 can't be measured"):
            measure(HERE, bound.getsockname()[1], TOKEN)
