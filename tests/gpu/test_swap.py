"""On a GPU: a run's pages and tensors are copied to pinned memory and back during other work, unchanged."""

from __future__ import annotations

import pytest
import torch

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.engine.kv.swap import SuspendedRuns, Swap, Swapped
from walkgraph.engine.kv.transfer import StateTransfer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SHAPE = CacheShape(layers=28, kv_heads=8, head_dim=128, dtype=torch.bfloat16)
PAGES = 400
MAIN, COPY, TENSOR, OTHER = StateKey("a", "main"), StateKey("a", "copy"), StateKey("a", "t"), StateKey("b", "main")


def advanced(swap: Swap) -> list[Swapped]:
    """Until something is told; the host never waits for the device."""
    while not (told := swap.advance()):
        pass
    return told


def test_what_goes_to_the_host_comes_back_as_it_was_while_others_write() -> None:
    device = torch.device("cuda")
    pool = Pool(SHAPE, PAGES, device)
    states = StateTable(KVPools({"main": pool, "copy": pool}), AttentionBackends())
    swap = Swap(states, SuspendedRuns(), lambda run: None, lambda run: True, lambda run: None, lambda run: ())
    value = torch.randn(2, 28, 3000, 8, 128, device=device).bfloat16()
    StateTransfer(states).import_state(MAIN, {"counters": torch.tensor([[3000, 3000]]), "kv.0": value})
    states.fork(MAIN, COPY, 2)
    states.set(TENSOR, torch.arange(1000, device=device))
    before = {key: StateTransfer(states).export(key) for key in (MAIN, COPY, TENSOR)}
    for _ in range(3):
        swap.suspend("a")
        assert advanced(swap) == [Swapped("a", out=True)]
        assert pool.pages.free == PAGES
        assert states.tensors[TENSOR].device.type == "cpu"
        other = {"counters": torch.tensor([[PAGES * 16, 0]]), "kv.0": torch.ones_like(value).repeat(1, 1, 3, 1, 1)}
        other["kv.0"] = other["kv.0"][:, :, : PAGES * 16]
        StateTransfer(states).import_state(OTHER, other)
        states.drop_run("b")
        swap.resume("a")
        assert advanced(swap) == [Swapped("a", out=False)]
        for key, wanted in before.items():
            found = StateTransfer(states).export(key)
            assert found.keys() == wanted.keys()
            assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    states.audit()


def test_pages_of_a_run_that_ends_on_its_way_back_are_not_written_late() -> None:
    device = torch.device("cuda")
    pool = Pool(SHAPE, PAGES, device)
    states = StateTable(KVPools({"main": pool}), AttentionBackends())
    swap = Swap(states, SuspendedRuns(), lambda run: None, lambda run: True, lambda run: None, lambda run: ())
    value = torch.randn(2, 28, PAGES * 16, 8, 128, device=device).bfloat16()
    counters = torch.tensor([[PAGES * 16, 0]])
    StateTransfer(states).import_state(MAIN, {"counters": counters, "kv.0": value})
    swap.suspend("a")
    advanced(swap)
    swap.resume("a")
    swap.advance()
    swap.cancel("a")
    states.drop_run("a")
    StateTransfer(states).import_state(OTHER, {"counters": counters, "kv.0": torch.ones_like(value)})
    torch.cuda.synchronize()
    assert bool((StateTransfer(states).export(OTHER)["kv.0"] == 1).all())
