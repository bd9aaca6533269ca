"""The row layout of a batch: the tokens of BAGEL's calls, arranged for one forward of its backbone.

    text of every piece | seen pictures | noised latents | clean latents
    <------------- und rows -----------> <---------- gen rows ---------->

A text piece puts its ids in the first part; a picture puts BOI and EOI there and its tokens in a later part. A picture
is one block with one position; text is causal, one position a token.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.layers.pictures.patches import grid_ids

EDGES = 2
"""Edge tokens of a picture: BOI and EOI."""

Kind = Literal["text", "seen", "noised", "clean"]


class Piece(NamedTuple):
    """The input of one call."""

    kind: Kind
    height: int
    """Rows of the picture's grid; 1 for text."""
    width: int

    @property
    def tokens(self) -> int:
        """Number of tokens without a picture's edges."""
        return self.height * self.width

    @property
    def rows(self) -> int:
        return self.tokens + (0 if self.kind == "text" else EDGES)


@dataclass(frozen=True)
class Rows:
    """The layout of one batch; shared by batches with equal pieces, so its tensors are never written to."""

    of: tuple[Tensor, ...]
    """int64 per piece: the rows of its tokens in temporal order."""
    piece: Tensor
    """int64 `[R]`: the piece of every row."""
    place: Tensor
    """int64 `[R]`: a row's position minus the first position of its piece."""
    und: int
    noised: int
    """Rows of noised latents, the first gen rows."""
    last: Tensor
    """int64: the last row of every text piece."""
    latents: Tensor
    """int64: the piece of every gen row."""
    grid: Tensor
    """int64: the grid id of every gen row."""


def picture_cells(call: Call, step: int, side: int) -> tuple[int, int, int]:
    """(rows, columns, cells) of a picture cut into squares of `step` pixels; at most `side` rows and columns."""
    _, height, width = call.inputs["pixels"].shape
    if height % step or width % step or not min(height, width) > 0 or max(height, width) > side * step:
        raise CallFailed(
            f"`{call.node}` takes pictures whose sides are multiples of {step} and at most {side * step} pixels, not "
            f"{width} by {height}; set `stride` and `max_side` of the node that reads the picture",
            "pixels",
        )
    return height // step, width // step, (height // step) * (width // step)


@lru_cache(maxsize=64)
def lay_out(pieces: tuple[Piece, ...], side: int, device: torch.device) -> Rows:
    """Lay out the pieces. `side`: side of the table of latent positions."""
    first = 0
    starts: dict[tuple[int, bool], int] = {}
    parts: list[tuple[int, bool, int]] = []
    for kind in ("text", "seen", "noised", "clean"):
        for index, piece in enumerate(pieces):
            edges = kind == "text"
            if piece.kind == kind or edges:
                count = EDGES if edges and piece.kind != "text" else piece.tokens
                starts[index, edges] = first
                parts.append((index, piece.kind == "text", count))
                first += count
    of = tuple(_tokens(piece, index, starts) for index, piece in enumerate(pieces))
    gen = [(i, p) for kind in ("noised", "clean") for i, p in enumerate(pieces) if p.kind == kind]
    counts = torch.tensor([p.tokens for _, p in gen], dtype=torch.int64)
    owners = torch.tensor([i for i, _ in gen], dtype=torch.int64)
    grids = [grid_ids(p.height, p.width, side) for _, p in gen]
    last = [int(of[i][-1]) for i, piece in enumerate(pieces) if piece.kind == "text"]
    return Rows(
        of=tuple(rows.to(device) for rows in of),
        piece=torch.cat([torch.full((n,), i) for i, _, n in parts]).to(device),
        place=torch.cat([torch.arange(n) * causal for _, causal, n in parts]).to(device),
        und=first - sum(p.tokens for _, p in gen),
        noised=sum(p.tokens for _, p in gen if p.kind == "noised"),
        last=torch.tensor(last, dtype=torch.int64).to(device),
        latents=owners.repeat_interleave(counts).to(device),
        grid=(torch.cat(grids) if grids else torch.empty(0, dtype=torch.int64)).to(device),
    )


def _tokens(piece: Piece, index: int, starts: dict[tuple[int, bool], int]) -> Tensor:
    edges = starts[index, True]
    if piece.kind == "text":
        return torch.arange(edges, edges + piece.tokens)
    inner = torch.arange(piece.tokens) + starts[index, False]
    return torch.cat([torch.tensor([edges]), inner, torch.tensor([edges + 1])])
