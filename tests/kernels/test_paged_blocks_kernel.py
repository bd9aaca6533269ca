"""Blocks placed in a paged cache, and their attention, against the plain forms.

In float16: the interpreter can't multiply matrices of bfloat16."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from walkgraph.abi.step import PagedRows
from walkgraph.layers.attention.paged_blocks import plain_attention, plain_place
from walkgraph.layers.kernels.paged_blocks import Cut, attend, choose, place

PAGE = 16


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Loops may end at a computed number in the interpreter too: it makes an int of an array of one number, which NumPy
    allows no longer."""
    if device == "cpu":
        from triton.runtime import interpreter

        patch = interpreter._patch_lang_tensor

        def patched(tensor: Any, scope: Any) -> None:
            patch(tensor, scope)
            scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

        monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


class Case(NamedTuple):
    qkv: Tensor
    cos: Tensor
    sin: Tensor
    k: Tensor
    v: Tensor
    rows: PagedRows


def case(
    device: str, lengths: list[int], batch: list[int], tokens: int, heads: int, groups: int, width: int = 16
) -> Case:
    """A table of `lengths` with pages in random order."""
    generator = torch.Generator().manual_seed(sum(lengths) + tokens)
    most = (max(lengths) + tokens) // PAGE + 2
    pages = (torch.randperm(len(lengths) * most, generator=generator) + 1).view(len(lengths), most)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    slots = ((len(lengths) * most + 1) * PAGE, groups, width)
    rows = [torch.tensor(batch), pages, torch.tensor(lengths), torch.zeros(len(lengths))]
    angles = normal(2, len(batch), tokens, width)
    return Case(
        normal(len(batch) * tokens, (heads + 2 * groups) * width).half().to(device),
        angles[0].cos().to(device),
        angles[1].sin().to(device),
        normal(*slots).half().to(device),
        normal(*slots).half().to(device),
        PagedRows(*(t.int().to(device) for t in rows)),
    )


@pytest.mark.parametrize(("heads", "groups"), [(3, 3), (4, 2)])
@pytest.mark.parametrize("spread", [True, False])
def test_blocks_are_placed_as_plainly(device: str, heads: int, groups: int, spread: bool) -> None:
    given, tokens = case(device, [5, 40, 0], [1, 0], 7, heads, groups), 7
    cos, sin = (t[:1].expand(2, -1, -1) if spread else t for t in (given.cos, given.sin))
    k, v = given.k.clone(), given.v.clone()
    q = place(given.qkv, cos, sin, k, v, given.rows, tokens, PAGE)
    wanted = plain_place(given.qkv, cos, sin, given.k, given.v, given.rows, tokens)
    torch.testing.assert_close(q, wanted, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(k, given.k, rtol=2e-3, atol=2e-3)
    assert torch.equal(v, given.v)


CUTS = {
    "tiles": Cut(m=16, block=16),
    "a small tile": Cut(m=32, block=16),
    "shares": Cut(m=32, block=16, splits=3, least=16),
    "many shares": Cut(m=32, block=32, splits=5, least=32),
    "joined": Cut(m=32, block=16, joined=True),
    "joined, wide": Cut(m=16, block=32, joined=True),
}


@pytest.mark.parametrize("name", CUTS)
@pytest.mark.parametrize(("lengths", "tokens"), [([0, 97, 0], 34), ([61, 14, 3], 40)])
def test_every_token_of_a_block_sees_its_sequence(device: str, name: str, lengths: list[int], tokens: int) -> None:
    given = case(device, lengths, [1, 0], tokens, 2, 1)
    q = given.qkv[:, : 2 * 16].view(-1, 2, 16).contiguous()
    wanted = plain_attention(q.float(), given.k.float(), given.v.float(), given.rows, tokens)
    for _ in range(2 if CUTS[name].splits > 1 else 1):  # counters are zero again
        out = attend(q, given.k, given.v, given.rows, tokens, PAGE, CUTS[name])
        torch.testing.assert_close(out.float(), wanted, rtol=4e-3, atol=4e-3)


def test_keys_are_shared_where_programs_are_few() -> None:
    assert choose(1, 16, 8000).splits > 1
    assert choose(400, 16, 8000).splits == 1
    assert choose(1, 16, 300).splits <= 2
