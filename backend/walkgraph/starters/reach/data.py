"""Training data, drawn on the training device: states along the expert's paths, and the expert's actions there.

Shape letters: B examples, L the most tokens of a prompt, T actions of a chunk, F forms of an instruction.
"""

from typing import NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor

from walkgraph.models.reach import scene as world
from walkgraph.models.reach.pictures import picture
from walkgraph.models.reach.words import FORMS
from walkgraph.starters.reach.tokens import BOS, LEVELS

_ASTRAY = 0.08
"""Standard deviation, in radians, of the arm's distance from the expert's path."""
_AHEAD = 1.5
"""Above 1, more of the states are near the target."""


class Examples(NamedTuple):
    pixels: Tensor
    """float32 `[B, 3, S, S]` in [-1, 1]."""
    ids: Tensor
    """int64 `[B, L]`."""
    lengths: Tensor
    """int64 `[B]`: number of valid tokens."""
    named_at: Tensor
    """int64 `[B]`: index of the colour's token."""
    actions: Tensor
    """float32 `[B, T, 2]`, normalized."""
    place: Tensor
    """float32 `[B, 2]`: place of the named target."""


class Prompts:
    """Prompts as `pi05.prompt` writes them, assembled from tables on a device."""

    def __init__(self, tokenizer: Tokenizer, device: torch.device) -> None:
        def ids(text: str) -> list[int]:
            return tokenizer.encode(text, add_special_tokens=False).ids

        texts = [[form.format(colour) for colour in world.COLOURS] for form in FORMS]
        heads = [[[BOS, *ids(f"Task: {text}, State:")] for text in row] for row in texts]
        colours = [ids(f" {colour}")[0] for colour in world.COLOURS]
        longest = max(len(head) for row in heads for head in row)
        padded = [[head + [0] * (longest - len(head)) for head in row] for row in heads]
        self._heads = torch.tensor(padded, device=device)
        self._lengths = torch.tensor([[len(head) for head in row] for row in heads], device=device)
        self._named = torch.tensor(
            [[head.index(colour) for head, colour in zip(row, colours, strict=True)] for row in heads], device=device
        )
        self._numbers = torch.tensor([ids(f" {number}")[0] for number in range(LEVELS)], device=device)
        self._end = torch.tensor(ids(";\nAction: "), device=device)

    def __call__(self, form: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Forms `[B]` of the instructions to reach the named targets of scenes `[B, WIDTH]` -> ids `[B, L]`, lengths,
        and the colours' indices `[B]`."""
        colour = world.named(state)[:, 0].long()
        heads, lengths, named = (table[form, colour] for table in (self._heads, self._lengths, self._named))
        digits = self._numbers[digitised(state[:, :2])]
        tail = torch.cat([digits, self._end.expand(len(form), -1)], 1)
        ids = torch.cat([heads, torch.zeros_like(tail)], 1)
        places = lengths[:, None] + torch.arange(tail.shape[1], device=ids.device)
        return ids.scatter(1, places, tail), lengths + tail.shape[1], named


def digitised(joints: Tensor) -> Tensor:
    """Joints `[B, 2]` -> int64 in 0..255, in equal steps over each joint's range."""
    low, high = (torch.tensor(bound, device=joints.device) for bound in (world.LOW, world.HIGH))
    share = (joints - low) / (high - low + 1e-6)
    return (share * LEVELS).floor().long().clamp(0, LEVELS - 1)


def examples(count: int, prompts: Prompts, generator: torch.Generator) -> Examples:
    """Draw examples on the generator's device."""
    device = generator.device
    state = world.drawn(count, generator)
    goal = world.joints_at(world.named(state)[:, 1:])
    numbers = torch.rand(count, 1, generator=generator, device=device)
    astray = torch.randn(count, 2, generator=generator, device=device) * _ASTRAY
    form = torch.randint(len(FORMS), (count,), generator=generator, device=device)
    way = 1 - numbers**_AHEAD
    joints = world.limited(state[:, :2] + way * (goal - state[:, :2]) + astray)
    state = torch.cat([joints, state[:, 2:]], 1)
    ids, lengths, named_at = prompts(form, state)
    actions = world.expert(state) / world.SPEED
    return Examples(picture(state), ids, lengths, named_at, actions, world.named(state)[:, 1:])
