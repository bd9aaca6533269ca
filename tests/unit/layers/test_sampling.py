from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from walkgraph.layers.sampling import (
    biased,
    count,
    count_prompt,
    draw,
    gumbel,
    kept,
    sample,
    scored,
    scores,
    top_logprobs,
)
from walkgraph.layers.sampling_params import SamplingParams

V = 12


def logits(rows: int = 1, seed: int = 0, vocab: int = V) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


def choose(
    x: Tensor,
    *,
    seed: list[int],
    position: list[int],
    temperature: float | list[float] = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> list[int]:
    temperatures = temperature if isinstance(temperature, list) else [temperature] * len(seed)
    params = SamplingParams(
        seed=torch.tensor(seed),
        position=torch.tensor(position),
        temperature=torch.tensor(temperatures),
        top_k=torch.full((len(seed),), top_k),
        top_p=torch.full((len(seed),), top_p),
        min_p=torch.full((len(seed),), min_p),
    )
    return sample(x, params).tolist()


def many(x: Tensor, n: int, **how: float) -> Tensor:
    """How often each token is drawn at positions 0 to n - 1."""
    drawn = choose(x.expand(n, -1), seed=[42] * n, position=list(range(n)), **how)  # type: ignore[arg-type]
    return torch.bincount(torch.tensor(drawn), minlength=x.shape[-1])


def chi_square(counts: Tensor, probabilities: Tensor) -> float:
    expected = probabilities.double() * counts.sum()
    return float(((counts - expected).square() / expected)[expected > 0].sum())


def splitmix(x: int) -> int:
    """The published generator's output function, in Python's integers."""
    full = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & full
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & full
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & full
    return x ^ (x >> 31)


@pytest.mark.parametrize("numbers", [(0, 0, 0), (1, 2, 3), (2**63 - 1, 10**6, 151_999)])
def test_bits_are_those_of_splitmix64(numbers: tuple[int, int, int]) -> None:
    golden, full = 0x9E3779B97F4A7C15, (1 << 64) - 1
    seed, position, index = numbers
    wanted = splitmix((splitmix((splitmix(seed) + position * golden) & full) + index * golden) & full)
    got = int(draw(*(torch.tensor([n]) for n in numbers)))
    assert got & full == wanted
    u = wanted / 2**64
    noise = float(gumbel(*(torch.tensor([n]) for n in numbers)))
    assert noise == pytest.approx(-math.log(-math.log1p(-u)), rel=1e-5, abs=1e-5)


def test_a_sample_is_the_same_in_any_row_of_any_batch() -> None:
    x, n = logits(40), 40
    seeds, positions = [i % 7 for i in range(n)], [3 * i for i in range(n)]
    for how in ({}, {"top_k": 5}, {"top_p": 0.7}, {"temperature": 0.5, "top_k": 6, "top_p": 0.9}):
        together = choose(x, seed=seeds, position=positions, **how)  # type: ignore[arg-type]
        order = torch.randperm(n, generator=torch.Generator().manual_seed(1)).tolist()
        shuffled = choose(x[order], seed=[seeds[i] for i in order], position=[positions[i] for i in order], **how)  # type: ignore[arg-type]
        alone = [choose(x[i : i + 1], seed=[seeds[i]], position=[positions[i]], **how)[0] for i in range(n)]  # type: ignore[arg-type]
        assert together == alone == [shuffled[order.index(i)] for i in range(n)]


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_frequencies_are_the_softmax(temperature: float) -> None:
    x = logits()
    counts = many(x, 20_000, temperature=temperature)
    # 31.3: one in a thousand, for eleven degrees of freedom
    assert chi_square(counts, (x[0] / temperature).softmax(-1)) < 31.3
    assert chi_square(counts, (x[0] / temperature * 1.1).softmax(-1)) > 31.3


def test_seeds_positions_and_tokens_are_independent() -> None:
    grid = [torch.arange(30)[:, None, None], torch.arange(30)[None, :, None], torch.arange(30)[None, None]]
    noise = gumbel(*grid)
    numbers = torch.exp(-torch.exp(-noise))
    assert noise.unique().numel() > 26_950
    for dim in range(3):
        assert float((numbers.mean(dim) - 0.5).abs().max()) < 5 * math.sqrt(1 / 12 / 30)
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.03)


def test_the_tail_of_the_noise_is_dense() -> None:
    noise = gumbel(torch.tensor(5), torch.tensor(6), torch.arange(1_000_000))
    top = noise.topk(1000).values
    assert top.unique().numel() == 1000
    # The largest of n is ln(n) plus a Gumbel number; the thousandth lies near ln(n / 1000).
    assert 11 < float(top[0]) < 24
    assert float(top[-1]) == pytest.approx(math.log(1000), abs=0.15)


def test_cold_rows_take_the_likeliest_token_among_hot_ones() -> None:
    x = logits(30)
    temperatures = [0.0 if i % 2 else 1.0 for i in range(30)]
    mixed = choose(x, seed=[9] * 30, position=list(range(30)), temperature=temperatures)
    hot = choose(x, seed=[9] * 30, position=list(range(30)))
    greedy = x.argmax(-1).tolist()
    assert mixed == [greedy[i] if i % 2 else hot[i] for i in range(30)]
    assert mixed != greedy
    assert choose(x, seed=[9] * 30, position=[0] * 30, temperature=0.0) == greedy


def test_top_k_and_top_p_cut_the_tail_and_keep_its_proportions() -> None:
    x = logits()
    order = x[0].argsort(descending=True)
    probability = x[0].softmax(-1)
    kept = torch.zeros(V).index_fill_(0, order[:3], 1)
    counts = many(x, 6000, top_k=3)
    assert counts[order[3:]].sum() == 0
    assert chi_square(counts, probability * kept / (probability * kept).sum()) < 13.8
    mass = probability[order].cumsum(0)
    for n in (1, 2, 4):
        counts = many(x, 3000, top_p=float(mass[n - 1]) - 1e-4)
        assert (counts > 0).nonzero()[:, 0].tolist() == sorted(order[:n].tolist())
    assert many(x, 50, top_p=0.0).argmax() == order[0]
    assert many(x, 50, top_k=1)[order[0]] == 50
    assert many(x, 4000, top_k=V).tolist() == many(x, 4000).tolist()


def naive(x: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    """The float64 scores that pass the filters, computed token by token."""
    weight = [math.exp(one - max(x)) for one in x]
    among = [i for i in range(len(x)) if not top_k or sum(other > x[i] for other in x) < top_k]
    total = sum(weight[i] for i in among)
    nucleus = {
        i for i in among if top_p >= 1 or x[i] == max(x) or sum(weight[j] for j in among if x[j] > x[i]) < top_p * total
    }
    return {i for i in nucleus if weight[i] >= min_p}


@pytest.mark.parametrize("seed", range(40))
def test_the_kept_tokens_are_those_of_a_naive_filter(seed: int) -> None:
    dice = torch.Generator().manual_seed(seed)
    # Few distinct values: ties at every threshold.
    x = (torch.randn(1, 24, generator=dice) * 3).round() / 2
    top_k = int(torch.randint(0, 27, (1,), generator=dice))
    top_p, min_p = (0.02 + 0.96 * torch.rand(2, generator=dice)).tolist()
    min_p *= seed % 2
    n = 1
    params = SamplingParams(
        seed=torch.zeros(n, dtype=torch.int64),
        position=torch.zeros(n, dtype=torch.int64),
        temperature=torch.ones(n),
        top_k=torch.tensor([top_k]),
        top_p=torch.tensor([top_p]),
        min_p=torch.tensor([min_p]),
    )
    wanted = naive(x[0].tolist(), top_k, top_p, min_p)
    assert set(kept(x, params)[0].nonzero()[:, 0].tolist()) == wanted
    drawn = choose(
        x.expand(300, -1), seed=[seed] * 300, position=list(range(300)), top_k=top_k, top_p=top_p, min_p=min_p
    )
    assert set(drawn) <= wanted
    assert len(wanted) == 1 or len(set(drawn)) > 1


def test_a_sick_row_says_so_and_harms_no_other() -> None:
    x = logits(4)
    x[0, 3], x[1], x[2, 5] = torch.nan, -torch.inf, torch.inf
    for heat in (0.0, 1.0):
        drawn = choose(x, seed=[1] * 4, position=[2] * 4, temperature=heat, top_p=0.9, top_k=8)
        assert drawn[:3] == [-1] * 3
        assert drawn[3:] == choose(x[3:], seed=[1], position=[2], temperature=heat, top_p=0.9, top_k=8)


def test_penalties_follow_the_prompt_and_the_output() -> None:
    counts = torch.zeros(3, V, dtype=torch.int16)
    count_prompt(counts, 2, torch.tensor([0, 1, 1]))
    for token in (1, 4, 4):
        count(counts, torch.tensor([2, 0]), torch.tensor([token, -1]))
    assert counts[2, :5].tolist() == [1, 3, 0, 0, 4]
    assert counts[0].sum() == 0
    x = torch.full((1, V), 1.0)
    x[0, 4] = -1.0
    zero = torch.zeros(1, dtype=torch.int64)
    params = SamplingParams(
        seed=zero,
        position=zero,
        temperature=torch.tensor([0.5]),
        repetition=torch.tensor([2.0]),
        presence=torch.tensor([0.25]),
        frequency=torch.tensor([0.125]),
    )
    got = scores(x, params, counts, torch.tensor([2], dtype=torch.int32))
    wanted = [0.5, 0.5 - 0.25 - 0.125, 1.0, 1.0, -2.0 - 0.25 - 0.25, 1.0]
    assert got[0, :6].tolist() == [2 * one for one in wanted]
    cold = params._replace(temperature=torch.tensor([0.0]))
    assert sample(x, cold, counts, torch.tensor([2])).tolist() == [2]
    with pytest.raises(ValueError, match="counts"):
        sample(x, params)
    count_prompt(counts, 2, torch.tensor([3]))
    assert counts[2].nonzero().tolist() == [[3]]


def test_log_probabilities_of_the_likeliest_and_the_chosen() -> None:
    x = logits(5)
    tokens = torch.tensor([0, 3, 7, 11, 2])
    ids, logprobs, chosen, rank = top_logprobs(x, tokens, 4)
    wanted = x.log_softmax(-1)
    torch.testing.assert_close(logprobs, wanted.gather(1, ids))
    torch.testing.assert_close(chosen, wanted.gather(1, tokens[:, None])[:, 0])
    assert torch.equal(ids, wanted.topk(4).indices)
    place = x.argsort(descending=True).argsort()
    assert torch.equal(rank, 1 + place.gather(1, tokens[:, None])[:, 0])


def test_scores_of_the_chosen_and_the_likeliest_in_pairs() -> None:
    x, tokens = logits(5), torch.tensor([0, 3, 7, 11, 2])
    wanted = x.log_softmax(-1)
    found = scored(x, tokens, 4)
    assert found.shape == (5, 5, 2)
    assert torch.equal(found[:, 0, 0].long(), tokens)
    assert torch.equal(found[:, 1:, 0].long(), wanted.topk(4).indices)
    torch.testing.assert_close(found[..., 1], wanted.gather(1, found[..., 0].long()))


def test_a_bias_is_added_to_the_tokens_that_it_names() -> None:
    x = logits(2)
    bias = torch.tensor([[[3.0, 2.5], [0.0, -100.0], [-1.0, -1.0]], [[-1.0, -1.0], [1e6, 5.0], [4.0, 1.0]]])
    wanted = x.clone()
    wanted[0, 3] += 2.5
    wanted[0, 0] -= 100
    wanted[1, 4] += 1
    assert torch.equal(biased(x, bias), wanted)
