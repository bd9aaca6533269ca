"""A rank's memory of its runs."""

from __future__ import annotations

import pytest

from walkgraph.abi.calls import StateKey
from walkgraph.engine.kv import limits
from walkgraph.engine.kv.limits import StateLimits


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
