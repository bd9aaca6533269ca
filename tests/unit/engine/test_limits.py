"""A rank's memory of its runs."""

from __future__ import annotations

import pytest

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv import limits
from walkgraph.engine.kv.limits import StateLimits
from walkgraph.placement.tables import StatePlan


@pytest.mark.safety("S15")
def test_a_run_that_is_forgotten_shares_pages_with_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a key that makes many sessions would find the pages of the root token from a run that goes on."""
    monkeypatch.setattr(limits, "_REMEMBERED", 2)
    known = StateLimits()
    root, lasting, other = (StateKey(name, "kv") for name in ("root", "lasting", "other"))
    assert known.salt(other.run) == "", "without keys all may share"
    known.admit("lasting", {}, "key")
    known.admit("root", {})
    assert (known.salt(lasting.run), known.salt(root.run)) == ("key", "")
    known.admit("session:1", {}, "key")
    assert known.salt(lasting.run) not in ("", "key")
    assert known.salt(root.run) == ""
    assert known.salt(other.run) != known.salt(lasting.run)
    known.admit("lasting", {}, "key")
    assert known.salt(lasting.run) == "key"


def test_a_limit_follows_the_parameters_of_the_last_admission() -> None:
    def state(name: str, capacity: str | None) -> StatePlan:
        return StatePlan(index=0, name=name, kind="paged_kv", scope="session", width="2", capacity=capacity)

    pools: dict[str, int] = {}
    states = (state("kv", "prompt + 8"), state("seen", "pictures * 100"), state("free", None), state("far", "1"))
    known = StateLimits(states, pools)
    # Pools are made later.
    pools |= {"kv": 0, "seen": 0, "free": 0}

    def most(run: str) -> list[int | None]:
        return [known.most(StateKey(run, name)) for name in ("kv", "seen", "free", "far")]

    assert most("session:s") == [None] * 4, "it was not admitted"
    for prompt in (10, 30):
        known.admit("session:s", {"prompt": prompt})
        # Its task has no `pictures`; the state `far` is on another rank.
        assert most("session:s") == [2 * (prompt + 8), None, None, None]
    known.forget("session:s")
    assert most("session:s") == [None] * 4
