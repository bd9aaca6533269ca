"""Padded and blockwise attention against a loop over heads and rows."""

import torch
from torch import Tensor

from walkgraph.layers.attention.dense_attention import BlockAttend, PackedAttend, causal_mask, dense_attention

torch.set_num_threads(1)


def naive(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """q `[L, H, D]`, k and v `[S, G, D]`, mask `[L, S]`."""
    out = torch.zeros_like(q)
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            group = head * k.shape[1] // q.shape[1]
            scores = (k[:, group] @ q[row, head]) / q.shape[2] ** 0.5
            out[row, head] = scores.masked_fill(~mask[row], -torch.inf).softmax(0) @ v[:, group]
    return out


def qkv(rows: int, heads: int = 4, groups: int = 2, width: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(rows, heads, width), torch.randn(rows, groups, width), torch.randn(rows, groups, width)


def test_grouped_heads_and_mask_equal_a_loop() -> None:
    torch.manual_seed(0)
    q, k, v = qkv(6)
    mask = torch.rand(6, 6) > 0.4
    mask |= torch.eye(6, dtype=torch.bool)
    out = PackedAttend((6,), mask=mask[None])(0, q, k, v)
    torch.testing.assert_close(out, naive(q, k, v, mask))


def test_parts_of_a_batch_are_put_back_in_the_order_of_rows() -> None:
    """Two sequences whose rows come as [a: 2 of each | b: 3 of each]."""
    torch.manual_seed(1)
    q, k, v = qkv(10)
    mask = torch.rand(2, 5, 5) > 0.3
    mask |= torch.eye(5, dtype=torch.bool)
    out = PackedAttend((2, 3), mask=mask)(0, q, k, v)
    for sequence, rows in enumerate(([0, 1, 4, 5, 6], [2, 3, 7, 8, 9])):
        torch.testing.assert_close(out[rows], naive(q[rows], k[rows], v[rows], mask[sequence]))


def test_kept_keys_continue_a_causal_sequence() -> None:
    torch.manual_seed(2)
    q, k, v = qkv(7)
    whole = PackedAttend((7,), mask=causal_mask(7))(0, q, k, v)
    first = PackedAttend((4,), mask=causal_mask(4), keep=True)
    start = first(0, q[:4], k[:4], v[:4])
    rest = PackedAttend((3,), mask=causal_mask(3, 4), past=first.kept)(0, q[4:], k[4:], v[4:])
    torch.testing.assert_close(torch.cat([start, rest]), whole)


def test_blocks_see_only_themselves_whether_equal_or_not() -> None:
    torch.manual_seed(3)
    for lengths in ([3, 3], [2, 4]):
        q, k, v = qkv(6, heads=2, groups=2)
        owner = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths))
        out = BlockAttend(lengths)(0, q, k, v)
        torch.testing.assert_close(out, naive(q, k, v, owner[:, None] == owner))


def test_no_mask_sees_everything() -> None:
    torch.manual_seed(4)
    q, k, v = qkv(5)
    out = dense_attention(q[None], k[None], v[None])[0]
    torch.testing.assert_close(out, naive(q, k, v, torch.ones(5, 5, dtype=torch.bool)))
