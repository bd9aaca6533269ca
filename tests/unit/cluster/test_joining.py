"""A Ray cluster is joined when it is needed, and what fails says what to do."""

import socket

import pytest

from walkgraph.cluster.joining import RETRY_SECONDS, Joining, join_cluster, why_not
from walkgraph.errors import Refused


class Cluster:
    """Refuses so many times, at the time that the test says."""

    def __init__(self, refusals: int) -> None:
        self.left, self.tried, self.now = refusals, 0, 100.0
        self.joining = Joining("10.0.0.1:6379", self.join, lambda: self.now)

    def join(self, address: str) -> object:
        self.tried += 1
        if self.tried <= self.left:
            raise Refused(f"{address} refuses for the {self.tried}. time")
        return self

    def refusal(self) -> str:
        with pytest.raises(Refused) as raised:
            self.joining.joined()
        return str(raised.value)


def test_it_is_joined_once() -> None:
    cluster = Cluster(0)
    assert not cluster.tried
    assert cluster.joining.joined() is cluster
    assert cluster.joining.joined() is cluster
    assert cluster.tried == 1


def test_what_fails_is_not_tried_again_at_once() -> None:
    cluster = Cluster(2)
    first = cluster.refusal()
    cluster.now += RETRY_SECONDS / 2
    assert cluster.refusal() == first
    assert cluster.tried == 1
    cluster.now += RETRY_SECONDS / 2
    assert cluster.refusal() != first
    cluster.now += RETRY_SECONDS
    assert cluster.joining.joined() is cluster


def test_a_head_that_does_not_answer_says_what_to_do() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(Refused, match=f"`{address}`; start it, or correct WALKGRAPH_RAY_ADDRESS"):
            join_cluster(address)


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.60.0
    Python: 3.11.7
This process on node 10.0.0.2 was started with:
    Ray: 2.50.0
    Python: 3.12.1
"""


@pytest.mark.parametrize(
    ("address", "error", "said"),
    [
        ("10.0.0.1:6379", RuntimeError(MISMATCH), "runs Ray 2.60.0 on Python 3.11.7, and this machine has Ray 2.50.0"),
        ("auto", RuntimeError(MISMATCH), "install the cluster's here: `pip install 'ray==2.60.0'`"),
        ("10.0.0.1:6379", ConnectionError("no"), "doesn't accept this machine's key; set RAY_AUTH_MODE and RAY_AUTH"),
        ("10.0.0.1:6379", RuntimeError("no raylet"), "run a node of the cluster on this machine"),
        ("auto", ConnectionError("none"), "no Ray cluster runs on this machine; run `ray start`"),
    ],
)
def test_what_ray_refuses_says_what_to_do(address: str, error: Exception, said: str) -> None:
    assert said in why_not(address, error)


@pytest.mark.parametrize("address", ["10.0.0.1", "head", "10.0.0.1:", ":6379", "10.0.0.1:0", "10.0.0.1:65536"])
def test_what_is_no_address_says_what_to_do(address: str) -> None:
    with pytest.raises(Refused, match="set WALKGRAPH_RAY_ADDRESS like"):
        join_cluster(address)
