"""pi0.5's weights, and its statistics as arrays.

A folder holds `model.safetensors` (or its shards): openpi's names, or lerobot's, which begin with `model.`. The
language model's head is its table of embeddings, under either name; the expert's own head is not used. What else lies
there is read by `walkgraph.checkpoints`.

With 16-bit weights, small but sensitive parameters stay in float32: the prefix's norms, the maps into and out of the
expert, and the time's MLP. The expert's modulations are computed once in float32 from the unrounded weights.
"""

from pathlib import Path
from typing import NamedTuple, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from walkgraph.architectures.weights import Loading, Names, load
from walkgraph.checkpoints.statistics import Quantiles, read_statistics
from walkgraph.models.pi05.config import Pi05Config
from walkgraph.models.pi05.model import Pi05

_PREFIX, _BOTH = "model.", "paligemma_with_expert."
_HEAD = f"{_BOTH}paligemma.lm_head.weight"
_TABLE = f"{_BOTH}paligemma.model.language_model.embed_tokens.weight"
_EXACT = ("action_in_proj.", "action_out_proj.", "time_mlp_in.", "time_mlp_out.")


Numbers = NDArray[np.float64]


class Scaling(NamedTuple):
    """Scaling between a robot's units and [-1, 1]: float64 `[n]`. NumPy's operations on a few numbers take the host a
    third of the time of torch's, and keep the interpreter lock, for which threads with pictures wait otherwise."""

    low: Numbers
    span: Numbers
    """The distance from -1 to 1 in the robot's units."""

    @classmethod
    def none(cls) -> Self:
        """The identity, for any count of numbers that are in [-1, 1] already."""
        return cls(np.array([-1.0]), np.array([2.0]))

    @classmethod
    def of(cls, quantiles: Quantiles) -> Self:
        return cls(*(np.array(numbers, np.float64) for numbers in quantiles))

    def inside(self, values: Numbers) -> Numbers:
        """`[..., m]` -> `[..., m]`, in about [-1, 1]. Raises ValueError if m exceeds the known statistics."""
        return (values - self._fit(self.low, values)) / self._fit(self.span, values) * 2 - 1

    def outside(self, values: Numbers) -> Numbers:
        """The inverse. Numbers beyond the known statistics stay unchanged."""
        known = values.shape[-1] if self.low.shape[0] == 1 else min(values.shape[-1], self.low.shape[0])
        mine = values[..., :known]
        back = (mine + 1) / 2 * self._fit(self.span, mine) + self._fit(self.low, mine)
        return back if known == values.shape[-1] else np.concatenate((back, values[..., known:]), -1)

    def _fit(self, of: Numbers, values: Numbers) -> Numbers:
        count = values.shape[-1]
        if of.shape[0] not in (1, *range(count, of.shape[0] + 1)):
            known = of.shape[0]
            raise ValueError(f"got {count} numbers, but the model has statistics for {known}; send at most {known}")
        return of if of.shape[0] == 1 else of[:count]


class Scalings(NamedTuple):
    state: Scaling
    actions: Scaling


def load_pi05(folder: Path, config: Pi05Config, **on: Unpack[Loading]) -> Pi05:
    """Load the model and pack it; strict."""
    names = Names(rename=_own_name, spare=(f"{_BOTH}gemma_expert.lm_head.weight",), exact=exact)
    return load(lambda: Pi05(config), folder, "model", names=names, **on).pack()


def exact(name: str) -> bool:
    """True if a parameter stays in float32."""
    return name.startswith(_EXACT) or (name.endswith("norm.weight") and ".language_model." in name)


def read_scalings(folder: Path, robot: str = "") -> Scalings:
    """`robot`: the folder under `assets`, if there are several. Raises `NotFound` or `InvalidInput`."""
    found = read_statistics(folder, robot)
    return Scalings(Scaling.of(found.state), Scaling.of(found.actions))


def _own_name(name: str) -> str:
    mine = name.removeprefix(_PREFIX)
    return _TABLE if mine == _HEAD else mine
