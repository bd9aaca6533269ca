"""The trained policy in a closed loop with the arm, many episodes at once, without the engine.

Shape letters: B episodes, T actions of a chunk.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

from walkgraph.models.pi05.model import Pi05
from walkgraph.models.reach import scene as world
from walkgraph.models.reach.pictures import picture
from walkgraph.starters.reach.config import config
from walkgraph.starters.reach.data import Prompts
from walkgraph.starters.reach.tokens import FILE

STEPS = 10
"""Steps of the flow."""


@dataclass(frozen=True)
class Episodes:
    end: Tensor
    """`[B, WIDTH]`: the final scenes."""
    taken: Tensor
    """int64 `[B]`: actions until the target was reached, or all."""
    film: list[Tensor]
    """The scenes `[B, WIDTH]` at every observation, then the final ones."""

    @property
    def reached(self) -> Tensor:
        """bool `[B]`."""
        return world.reached(self.end)

    @property
    def wrong(self) -> Tensor:
        """bool `[B]`: the nearest target at the end is not the named one."""
        return world.distances(self.end).argmin(1) != self.end[:, 2].long()


class Policy:
    def __init__(self, model: Pi05, tokenizer: Tokenizer) -> None:
        # Nothing needs gradients, but in gradient mode the layers are plain torch on every device.
        self.model = model.eval().requires_grad_(False)
        self.device = model.action_out_proj.weight.device
        self.prompts = Prompts(tokenizer, self.device)

    def actions(self, state: Tensor, form: Tensor, generator: torch.Generator, steps: int = STEPS) -> Tensor:
        """Actions for scenes `[B, WIDTH]` by forms `[B]` of the instruction, in radians per second: `[B, T, 2]`."""
        ids, lengths, _ = self.prompts(form, state)
        prefix = self.model.read(*self.model.laid([picture(state)], ids, lengths))
        x = torch.randn(len(state), world.HORIZON, 2, generator=generator, device=self.device)
        times = 1 - torch.arange(steps, device=self.device) / steps
        for by in self.model.modulations(times):
            x = x - self.model.denoise(x, by.expand(len(state), -1, -1, -1), prefix) / steps
        return x.clamp(-1, 1) * world.SPEED

    def drive(self, state: Tensor, form: Tensor, *, seed: int, apply: int, chunks: int, steps: int = STEPS) -> Episodes:
        """From scenes `[B, WIDTH]`: take `apply` actions of each chunk, observe again, until all have reached their
        target."""
        generator = torch.Generator(self.device).manual_seed(seed)
        film, taken = [state], torch.zeros(len(state), dtype=torch.int64, device=self.device)
        for _ in range(chunks):
            state, more = world.driven(state, self.actions(state, form, generator, steps)[:, :apply])
            film.append(state)
            taken = taken + more
            if bool(world.reached(state).all()):
                break
        return Episodes(state, taken, film)


def load(folder: Path, device: torch.device) -> Policy:
    """The float32 policy of a folder written by `train`."""
    model = Pi05(config())
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()})
    return Policy(model.to(device), Tokenizer.from_file(str(FILE)))
