from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from walkgraph.networks.sampling import draw, gumbel, sample, uniform

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
) -> list[int]:
    temperatures = temperature if isinstance(temperature, list) else [temperature] * len(seed)
    return sample(
        x,
        seed=torch.tensor(seed),
        position=torch.tensor(position),
        temperature=torch.tensor(temperatures),
        top_k=torch.full((len(seed),), top_k),
        top_p=torch.full((len(seed),), top_p),
    ).tolist()


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
    assert float(uniform(*(torch.tensor([n]) for n in numbers))) == pytest.approx(wanted / 2**64, abs=1e-15)


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
    numbers = uniform(*grid)
    assert numbers.unique().numel() == 27_000
    for dim in range(3):
        assert float((numbers.mean(dim) - 0.5).abs().max()) < 5 * math.sqrt(1 / 12 / 30)
    assert float(gumbel(*grid).mean()) == pytest.approx(0.5772, abs=0.03)


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
