"""The placement document: JSON both ways, faults with places, the published schema."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import GIB, at, duet, hardware, placement
from walkgraph.errors import InvalidInput
from walkgraph.placement.document import (
    SCHEMA_PATH,
    assume,
    decode,
    default_placement,
    encode,
    faults,
    named_hosts,
    schema_text,
    size_in_bytes,
)

GOOD: dict[str, Any] = {
    "format": "walkgraph/placement@1",
    "name": "p",
    "groups": [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["llm"], "ranks": [1], "walks": ["draw"], "memory": "2GiB"}],
    "ranks": [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cuda:0"}],
}


def test_both_ways_without_loss() -> None:
    assert encode(decode(GOOD)) == GOOD
    made = placement(at(1, "llm", memory=5, host="h"))
    assert decode(json.loads(json.dumps(encode(made)))) == made


@pytest.mark.parametrize(
    ("path", "value", "pointer", "says"),
    [
        (("groups", 0, "rank"), 1, "/groups/0/rank", "did you mean `rank"),
        (("groups", 0, "ranks"), [], "/groups/0/ranks", "at least 1"),
        (("groups", 0, "ranks"), ["0"], "/groups/0/ranks/0", "integer"),
        (("groups", 1, "memory"), "2 gigs", "/groups/1/memory", "pattern"),
        (("ranks", 0, "device"), "gpu", "/ranks/0/device", "pattern"),
        (("format"), "walkgraph/placement@2", "/format", "walkgraph/placement@1"),
    ],
)
def test_faults_have_their_places(path: Any, value: Any, pointer: str, says: str) -> None:
    bad = json.loads(json.dumps(GOOD))
    *way, last = path if isinstance(path, tuple) else (path,)
    inner = bad
    for step in way:
        inner = inner[step]
    inner[last] = value
    found = faults(bad)
    assert pointer in [place for place, _ in found]
    assert any(says in message for place, message in found if place == pointer)
    with pytest.raises(InvalidInput) as error:
        decode(bad)
    assert error.value.pointer == found[0][0]


def test_missing_keys_are_named() -> None:
    assert ("/name", "`name` is missing; add it") in faults({k: v for k, v in GOOD.items() if k != "name"})


def deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [None, [], 3, {"name": float("nan")}, {"name": object()}, {"a": 10**5000}, "\ud800", deep()]
)
def test_what_is_no_placement_at_all(value: Any) -> None:
    assert faults(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=8,
    )
)
def test_faults_never_raise(value: Any) -> None:
    faults({**GOOD, "groups": value})
    faults(value)


@pytest.mark.parametrize(
    ("memory", "size"), [(7, 7), ("7B", 7), ("2GiB", 2 * GIB), ("1.5 kB", 1500), ("40%", 40), ("0.5%", 0)]
)
def test_sizes(memory: int | str, size: int) -> None:
    assert size_in_bytes(memory, 100) == size


@pytest.mark.parametrize("memory", ["", "GiB", "5 PiB", "1..5GiB", "-1GiB", "1e3B"])
def test_what_is_no_size(memory: str) -> None:
    with pytest.raises(InvalidInput, match="is not a size"):
        size_in_bytes(memory, 100)


def test_by_default_everything_is_on_the_device_with_most_room() -> None:
    roomy = default_placement(duet(), hardware(4 * GIB, 8 * GIB))
    assert [(r.rank, r.device) for r in roomy.ranks] == [(0, "cuda:1")]
    assert [(r.rank, r.device) for r in default_placement(duet(), hardware()).ranks] == [(0, "cpu")]


def test_the_published_schema_is_the_models() -> None:
    assert SCHEMA_PATH.read_text() == schema_text(), "write it anew with `python -m walkgraph.placement.document`"


def test_gpus_can_be_assumed_in_place_of_those_that_are_here() -> None:
    host = hardware(7)
    assumed = assume(host, "3x141GB")
    assert assumed.devices[0] == host.devices[0]
    assert [(d.name, d.total, d.free, d.assumed) for d in assumed.devices[1:]] == [
        (f"cuda:{i}", 141 * 10**9, 141 * 10**9, True) for i in range(3)
    ]


@pytest.mark.parametrize(
    "text", ["", "3", "x1GB", "0x1GB", "513x1GB", "-1x1GB", "3x", "3x50%", "3xGB", "3x0GB", "a" * 9]
)
def test_hardware_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="3x141GB"):
        assume(hardware(), text)


def test_the_named_hosts_a_document() -> None:
    groups = [{"nodes": ["*"], "ranks": [0]}, {"nodes": ["a"], "ranks": [1], "host": "far"}]
    ranks = [{"rank": 0, "device": "cpu"}, {"rank": 1, "device": "cpu"}]
    document = {"format": "walkgraph/placement@1", "name": "spread", "groups": groups, "ranks": ranks}
    assert named_hosts(document) == {"far"}
    assert named_hosts({**document, "groups": groups[:1]}) == set()
    apart = [ranks[0], {**ranks[1], "host": "other"}]
    assert named_hosts({**document, "ranks": apart}) == {"other"}
    assert named_hosts({"groups": groups}) == set()
