"""The kernel for one-token attention, against its plain form."""

import pytest
import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.paged_rows import StepArguments
from walkgraph.layers.attention.step_attention import plain
from walkgraph.layers.invariance import batch_invariant
from walkgraph.layers.kernels.gpu import KINDS
from walkgraph.layers.kernels.step_attention import STREAMED, Tuning, launch, streams, tuning

torch.set_num_threads(1)
H100 = KINDS["H100"].shared
PAGE = 16


def made(lengths: list[int], batch: list[int], heads: int, groups: int, width: int) -> tuple[Tensor, ...]:
    """qkv, k, v, frequencies, rows, pages, lengths, positions; slots that hold no token of a row are NaN."""
    torch.manual_seed(sum(lengths))
    reach = max(lengths) // PAGE + 2
    pages = (torch.randperm(len(lengths) * reach) + 1).view(len(lengths), reach)
    k, v = (torch.full(((len(lengths) * reach + 1) * PAGE, groups, width), torch.nan).half() for _ in range(2))
    for row, length in enumerate(lengths):
        slots = (pages[row, :, None] * PAGE + torch.arange(PAGE)).flatten()[:length]
        k[slots], v[slots] = torch.randn(2, length, groups, width).half()
    counts = torch.tensor(lengths)
    return (
        torch.randn(len(batch), (heads + 2 * groups) * width).half(), k, v,
        1 / 10000.0 ** (torch.arange(0, width, 2) / width),
        torch.tensor(batch).int(), pages.int(), counts.int(), (counts * 2 + 5).int(),
    )  # fmt: skip


SHAPES = [
    (1, 3, (3, 1, 64, False)),
    (3, 0, (6, 2, 64, True)),
    (1, 0, (1, 1, 128, False)),
    (3, 3, (16, 1, 64, True)),
]
"""Splits, stages, and (heads, key heads, width, whether heads are normed)."""


@pytest.mark.parametrize(("splits", "stages", "shape"), SHAPES)
def test_it_equals_the_plain_form(splits: int, stages: int, shape: tuple[int, int, int, bool], device: str) -> None:
    heads, groups, width, norm = shape
    # The last block full, empty but for the new token, none; the pad row twice.
    lengths, batch = [31, 32, 33, 0, 70, 2], [4, 0, 1, 2, 3, 5, 5]
    qkv, k, v, frequencies, *rest = (t.to(device) for t in made(lengths, batch, heads, groups, width))
    rows = PagedRows(*rest)
    norms = (torch.rand(width).half().to(device), torch.rand(width).half().to(device)) if norm else (None, None)
    twin_k, twin_v = k.clone(), v.clone()
    wanted = plain(StepArguments(qkv, twin_k, twin_v, rows, frequencies, heads, *norms))
    block = 16 if stages else streams(4, width)
    # Rows of fewer tokens than `least` have one split, longer ones more.
    tuned = Tuning(splits=splits, block=block, warps=4, stages=stages, least=33 if splits == 3 else 1)
    first_k, first_v = k.clone(), v.clone()
    out = launch(StepArguments(qkv, first_k, first_v, rows, frequencies, heads, *norms), tuned)
    torch.testing.assert_close(out[:5], wanted[:5], atol=2e-3, rtol=2e-3)
    kept = torch.ones(k.shape[0], dtype=torch.bool, device=device)
    kept[(rows.pages[5].long()[:, None] * PAGE + torch.arange(PAGE, device=device)).flatten()] = False
    torch.testing.assert_close(first_k[kept], twin_k[kept], atol=2e-3, rtol=2e-3, equal_nan=True)
    torch.testing.assert_close(first_v[kept], twin_v[kept], equal_nan=True)
    again = launch(StepArguments(qkv, k, v, rows, frequencies, heads, *norms), tuned)
    assert torch.equal(out[:5], again[:5]), "counters are back at zero, and the order of arrival does not matter"


@pytest.mark.parametrize(("context", "width"), [(16, 64), (4096, 128), (4096, 256)])
def test_every_batch_has_one_cut_where_numbers_may_not_depend_on_it(context: int, width: int) -> None:
    with batch_invariant():
        cuts = {str(tuning(batch, 8, 3, width, context, H100)) for batch in (1, 2, 16, 64)}
    assert len(cuts) == 1
    assert len({str(tuning(batch, 8, 3, width, 4096, H100)) for batch in (1, 2, 16, 64)}) > 1


@pytest.mark.parametrize("batch", [1, 2, 8, 16, 32, 64, 100])
@pytest.mark.parametrize("context", [16, 512, 4096])
@pytest.mark.parametrize(("group", "width"), [(3, 128), (8, 128), (1, 64), (4, 256)])
@pytest.mark.parametrize("kind", ["H100", "A100", "RTX 4090"])
def test_the_chosen_cut_fits_a_gpu(batch: int, context: int, group: int, width: int, kind: str) -> None:
    shared = KINDS[kind].shared
    it = tuning(batch, 8, group, width, context, shared)
    blocks = -(-context // it.block)
    assert 1 <= it.splits <= blocks
    assert it.splits == 1 or 132 // 2 <= batch * 8 * it.splits <= 3 * 132 or it.splits == min(blocks, 32)
    if it.stages:
        assert 4 * it.block * width * (it.stages - 1) < shared
    else:
        assert group <= STREAMED
        assert it.block % streams(it.warps, width) == 0
