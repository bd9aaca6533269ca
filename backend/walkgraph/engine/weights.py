"""Turns the weights of a plan into the load context of an operator."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from walkgraph.abi.calls import Scalar
from walkgraph.abi.operator import Capture, LoadContext
from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.collectives.base import WHOLE, Shard
from walkgraph.placement.sizes import weights_folder
from walkgraph.placement.tables import WeightsPlan


class Weights:
    """One weight set on one rank and device, and the modules that its operators share."""

    def __init__(
        self,
        named: WeightsPlan | None,
        roots: Sequence[Path],
        device: torch.device,
        precision: str = "bf16",
        shard: Shard = WHOLE,
        sequence: Shard = WHOLE,
        expert_parallel: ExpertParallel | None = None,
    ) -> None:
        """`precision`, `shard`, `sequence`, `expert_parallel`: as in `LoadContext`."""
        self.device, self.precision = device, precision
        self._shard, self._sequence, self._expert_parallel = shard, sequence, expert_parallel
        self.family = named.family if named else None
        self.folder: Path | None = None
        self.random: tuple[str, int] | None = None
        self._shared: dict[Hashable, Any] = {}
        if named is not None:
            kind, _, rest = named.source.partition(":")
            if kind == "random":
                config, _, seed = rest.rpartition(":")
                self.random = (config, int(seed))
            else:
                self.folder = weights_folder(named.source, roots)

    @property
    def bytes(self) -> int:
        """Size of the weight files on disk, or a shard's share of it."""
        files = self.folder.glob("*.safetensors") if self.folder else ()
        return sum(path.stat().st_size for path in files if path.is_file()) // self._shard.count

    def context(
        self, options: Mapping[str, Scalar], progress: Callable[[int], None], capture: Capture | None = None
    ) -> LoadContext:
        return LoadContext(
            device=self.device,
            dtype=torch.float32 if self.device.type == "cpu" else torch.bfloat16,
            folder=self.folder,
            family=self.family,
            shared=self._shared,
            options=options,
            precision=self.precision,
            random=self.random,
            progress=progress,
            capture=capture,
            shard=self._shard,
            sequence=self._sequence,
            expert_parallel=self._expert_parallel,
        )
