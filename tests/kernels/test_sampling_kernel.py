"""The sampling kernels against their torch twin, at sizes that the interpreter can bear."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from walkgraph.layers.sampling import count, sample_plainly, top_logprobs
from walkgraph.layers.sampling_params import SamplingParams

V, R = 2100, 3
"""Two blocks, the second one nearly empty."""


@pytest.fixture(autouse=True)
def _there(device: str) -> Iterator[None]:
    with torch.device(device):
        yield


@pytest.fixture(params=["in one launch", "in blocks"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    from walkgraph.layers.kernels import sampling as module

    if request.param == "in blocks":
        monkeypatch.setattr(module, "LONGEST", 0)
    return module


def params(n: int = R, first: int = 0, temperature: float = 0.8, **filters: list[float]) -> SamplingParams:
    return SamplingParams(
        seed=torch.arange(n) * 7 + 1,
        position=torch.arange(n) + first,
        temperature=torch.full((n,), temperature),
        **{k: torch.tensor(v, dtype=torch.int64 if k == "top_k" else torch.float32) for k, v in filters.items()},
    )


def logits(scale: float, seed: int = 0, rows: int = R) -> Tensor:
    return drawn(lambda dice: torch.randn(rows, V, generator=dice, device="cpu"), seed) * scale


def drawn(draw: Callable[[torch.Generator], Tensor], seed: int) -> Tensor:
    """Numbers that are the same on every device."""
    return draw(torch.Generator("cpu").manual_seed(seed)).to(torch.get_default_device())


CASES = {
    "plain": {},
    "top_p": {"top_p": [0.9, 0.5, 1.0]},
    "narrow": {"top_p": [0.02, 0.001, 0.0]},
    "top_k": {"top_k": [50, 0, 1]},
    "few": {"top_k": [16, 5, 12], "top_p": [0.8, 1.0, 0.9]},
    "both": {"top_k": [40, 700, 0], "top_p": [0.7, 0.3, 0.05]},
    "all": {"top_k": [100, 0, 30], "top_p": [0.9, 0.6, 1.0], "min_p": [0.0, 0.3, 0.5]},
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("scale", "kind"), [(3.0, torch.float32), (0.3, torch.bfloat16)])
def test_tokens_are_the_twin_s(kernels, name: str, scale: float, kind: torch.dtype) -> None:
    x = logits(scale, seed=len(name)).to(kind)
    wanted = params(**CASES[name])
    assert kernels.sample(x, wanted).tolist() == sample_plainly(x, wanted).tolist()


def test_cold_and_sick_rows_stand_among_hot_ones(kernels) -> None:
    x = logits(2.0, rows=6)
    x[0, 30:33] = 20.0
    x[2, 2050] = torch.nan
    x[3] = -torch.inf
    x[4, :2090] = -torch.inf
    x[5, 3] = torch.inf
    wanted = params(6, top_p=[0.8] * 6)._replace(temperature=torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    got = kernels.sample(x, wanted).tolist()
    assert got == sample_plainly(x, wanted).tolist()
    assert got[0] == 30
    assert got[2] == got[3] == got[5] == -1
    assert got[4] >= 2090


def test_penalties_read_the_rows_of_the_table(kernels) -> None:
    table = drawn(lambda dice: torch.randint(0, 6, (5, V), generator=dice, device="cpu"), 3).to(torch.int16)
    rows = torch.tensor([4, 0, 2], dtype=torch.int32)
    penalties = {"repetition": [1.5, 1.0, 3.0], "presence": [0.0, 1.5, 1.0], "frequency": [0.5, 0.0, 1.0]}
    for heat in (0.0, 1.0):
        wanted = params(temperature=heat, top_p=[0.9, 0.4, 1.0], **penalties)
        x = logits(2.0, seed=5)
        got = kernels.sample(x, wanted, table, rows).tolist()
        assert got == sample_plainly(x, wanted, table, rows).tolist()
        assert kernels.sample(x, wanted, table[rows.long()].contiguous()).tolist() == got


def test_a_row_s_token_depends_on_its_row_alone(kernels) -> None:
    wide = torch.cat([logits(0.5), logits(0.5)], dim=1)
    x = wide[:, :V]
    assert x.stride(0) == 2 * V
    wanted = params(top_p=[0.3, 0.6, 0.9])
    together = kernels.sample(x, wanted).tolist()
    for i in range(R):
        alone = SamplingParams(*(None if one is None else one[i : i + 1] for one in wanted))
        assert kernels.sample(x[i : i + 1], alone).tolist() == [together[i]]


def test_many_rows_take_other_launches_to_the_same_tokens(kernels) -> None:
    n = 9
    x = logits(0.5, rows=n)[:, :300]
    wanted = params(n, top_p=[0.05 + 0.1 * i for i in range(n)], top_k=[0, 0, 0, 50, 50, 50, 200, 200, 3])
    together = kernels.sample(x, wanted).tolist()
    assert together == sample_plainly(x, wanted).tolist()
    few = SamplingParams(*(None if one is None else one[:5] for one in wanted))
    assert kernels.sample(x[:5], few).tolist() == together[:5]


def test_a_program_may_take_several_blocks_of_a_row(kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    x, wanted = logits(0.5, seed=8), params(top_k=[12, 40, 0], top_p=[0.9, 0.4, 0.1])
    apart = kernels.sample(x, wanted).tolist()
    monkeypatch.setattr(kernels, "_PROGRAMS", 1)
    assert kernels.sample(x, wanted).tolist() == apart == sample_plainly(x, wanted).tolist()


def test_top_k_counts_where_equal_scores_are_too_many_for_a_list(kernels) -> None:
    x = torch.zeros(3, 5000)
    x[1, 100:4900] = 1.0
    x[2, 4990:4995] = 2.0
    x[2, :4990] = -torch.inf
    wanted = params(top_k=[3, 9, 8])
    for first in range(3):
        moved = wanted._replace(position=wanted.position + first)
        assert kernels.sample(x, moved).tolist() == sample_plainly(x, moved).tolist()
    # A list that was too long is empty for the next sample.
    assert not kernels.Workspace.of(x.device, 3, 5000).listed.any()


def test_tokens_are_counted_in_place(kernels) -> None:
    table = torch.zeros(4, 50, dtype=torch.int16)
    table[1, 7], table[2, 3] = 1, 32766
    twin = table.cpu().clone()
    rows, tokens = torch.tensor([1, 2, 0], dtype=torch.int32), torch.tensor([7, 3, -1])
    kernels.count(table, rows, tokens)
    count(twin, rows.cpu(), tokens.cpu())
    assert torch.equal(table.cpu(), twin)
    assert table[1, 7] == 3
    assert table[2, 3] == 32766
    assert table[0].sum() == 0


def test_totals_and_ranks(kernels) -> None:
    from walkgraph.layers.kernels.sampling_totals import totals

    x = logits(3.0)
    x[1, :2060] = -torch.inf
    tokens = torch.tensor([5, 2080, 99])
    chosen = x.gather(1, tokens[:, None])[:, 0]
    total, rank = totals(x, chosen)
    _, _, logprob, wanted = top_logprobs(x.cpu(), tokens.cpu(), 2)
    assert ((chosen - total).cpu() - logprob).abs().max() < 1e-5
    assert rank.tolist() == wanted.tolist()
