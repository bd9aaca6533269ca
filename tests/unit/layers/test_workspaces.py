"""Memory of the launches of one stream."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from walkgraph.layers.kernels.workspaces import Workspaces


class Stream:
    def __init__(self, cuda_stream: int) -> None:
        self.cuda_stream = cuda_stream


def test_streams_share_no_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    device, made, now = torch.device("cuda", 0), list[object](), {"stream": 1, "captures": False}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream(now["stream"]))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now["captures"])

    def make(on: torch.device) -> Any:
        made.append(object())
        return made[-1]

    workspace = Workspaces(make, "run it")
    now["captures"] = True
    with pytest.raises(RuntimeError, match="run it once before capturing it"):
        workspace(device)
    now["captures"] = False
    first = workspace(device)
    now["stream"] = 2
    second = workspace(device)
    assert first is not second
    now["captures"] = True
    assert workspace(device) is second
    now["stream"] = 3
    assert workspace(device) in made, "of a stream that has only been captured on"
    assert len(made) == 2


def test_a_cpu_has_one() -> None:
    workspace = Workspaces(lambda device: torch.zeros(1, device=device), "run it")
    assert workspace(torch.device("cpu")) is workspace(torch.device("cpu"))
