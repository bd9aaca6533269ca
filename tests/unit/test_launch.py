"""A service as its settings make it."""

import sys
from pathlib import Path

import pytest

from walkgraph import launch
from walkgraph.errors import Refused
from walkgraph.settings import Settings


def test_a_backend_that_is_not_installed_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Refused, match=r"pip install 'walkgraph\[ray\]'"):
        launch._supervisor(Settings(home=tmp_path, backend="ray"))
    assert launch._supervisor(Settings(home=tmp_path)).socket == tmp_path / "d" / "forks"
