"""Training sequences of one kind as one fixed-shape batch: masks, positions and rows, with blocks that can be dropped.

A sequence is a list of blocks in the order of time. Columns are ordered und first, gen after (see `layers.decoder`);
the mask and the positions carry the order of time.

Shape letters: B sequences, L columns of a sequence.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["text", "vit", "vae", "noise"]


class Block(NamedTuple):
    kind: Kind
    length: int
    """Number of tokens; for an image without its two edges."""


class Layout:
    """The shape of one task's sequences. Und columns: text, ViT tokens and the edges of all images, by block."""

    def __init__(self, blocks: list[Block], device: torch.device | str = "cpu") -> None:
        self.blocks = blocks
        und, gen = [], []
        for index, (kind, length) in enumerate(blocks):
            rows = [(index, place) for place in range(length + (0 if kind == "text" else 2))]
            inner = rows[1:-1] if kind in ("vae", "noise") else []
            gen += inner
            und += [row for row in rows if row not in inner]
        columns = torch.tensor(und + gen, device=device)
        self.widths = (len(und), len(gen))
        self.block, self.place = columns.unbind(1)
        earlier = self.block[:, None] > self.block
        same = self.block[:, None] == self.block
        text = torch.tensor([kind == "text" for kind, _ in blocks], device=device)[self.block]
        causal = self.place[:, None] >= self.place
        self.allowed = earlier | same & (~text[:, None] | causal)
        self.is_text = text
        self.alone = torch.eye(len(columns), dtype=torch.bool, device=device)

    def mask(self, there: Tensor) -> Tensor:
        """there bool `[B, L]` -> bool `[B, L, L]`; a dropped or padded column attends only itself."""
        return self.allowed & there[:, None] & there[:, :, None] | self.alone

    def there(self, lengths: dict[int, Tensor], kept: dict[int, Tensor], count: int) -> Tensor:
        """bool `[B, L]` from the lengths of text blocks and the flags of kept blocks, each `[B]` by block index."""
        there = torch.ones(count, len(self.block), dtype=torch.bool, device=self.block.device)
        for index, length in lengths.items():
            there &= (self.block != index) | (self.place < length[:, None])
        for index, keep in kept.items():
            there &= (self.block != index) | keep[:, None]
        return there

    def positions(self, there: Tensor) -> Tensor:
        """int64 `[B, L]`: text advances by one per token, a whole image by one."""
        steps = []
        for index, (kind, _) in enumerate(self.blocks):
            inside = there & (self.block == index)
            steps.append(inside.sum(1) if kind == "text" else inside.any(1).long())
        starts = torch.stack(steps, 1).cumsum(1) - torch.stack(steps, 1)
        return starts[:, self.block] + torch.where(self.is_text, self.place, 0)

    def rows(self, values: Tensor) -> Tensor:
        """`[B, L]` -> `[B * L]` in the order of rows: all und columns, then all gen columns."""
        und, gen = values.split(self.widths, 1)
        return torch.cat([und.flatten(), gen.flatten()])
