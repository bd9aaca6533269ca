from __future__ import annotations

import pytest
import torch

from walkgraph.layers.rows import Gathered, Tables, gather_rows, settle_rows

T = 9


def tables(seed: int) -> Tables:
    generator = torch.Generator().manual_seed(seed)
    live = torch.rand(T, generator=generator) < 0.7
    live[-1] = False
    return Tables(
        live,
        torch.randint(0, 5, (3, T), generator=generator, dtype=torch.int32),
        torch.randint(1, 6, (T,), generator=generator, dtype=torch.int32),
        torch.randint(-(2**62), 2**62, (T, 2), generator=generator),
        torch.rand(T, 3, generator=generator),
    )


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("told", ["both", "none"])
def test_rows_are_gathered_and_settled_as_plainly(batch: int, told: str, device: str) -> None:
    from walkgraph.layers.kernels import rows as kernels

    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        index = torch.randperm(T - 1, generator=generator)[:batch]
        index[batch - batch // 3 :] = T - 1
        here = tables(seed)
        there = Tables(*(table.clone().to(device) for table in here))
        at = gather_rows(index, here)
        found = Gathered(*kernels.gather(index.to(device), *there))
        for mine, other in zip(at, found, strict=True):
            assert torch.equal(mine, other.cpu())
        stopped = torch.rand(batch, generator=generator) < 0.3 if told == "both" else None
        sound = torch.rand(batch, generator=generator) < 0.8 if told == "both" else None
        grown = torch.tensor([1, 1, 4], dtype=torch.int32)
        mine = torch.zeros(2, batch, dtype=torch.bool)
        others = torch.ones(2, batch, dtype=torch.bool, device=device)
        settle_rows(index, at, here, grown, stopped, sound, (mine[0], mine[1]))
        kernels.settle(
            index.to(device),
            found.wide,
            found.iteration,
            there.live,
            there.counters,
            there.times,
            grown.to(device),
            None if stopped is None else stopped.to(device),
            None if sound is None else sound.to(device),
            (others[0], others[1]),
        )
        assert torch.equal(mine, others.cpu())
        for plain, kernel in zip(here, there, strict=True):
            assert torch.equal(plain, kernel.cpu())
