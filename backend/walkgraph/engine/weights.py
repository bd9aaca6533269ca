"""From a plan's weights to what an operator is loaded from."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from walkgraph.abi.calls import Scalar
from walkgraph.abi.operator import Capture, LoadContext
from walkgraph.placement.sizes import weights_folder


class Weights:
    """One weight set on one rank and device, and the modules that its operators share."""

    def __init__(self, source: str | None, roots: Sequence[Path], device: torch.device) -> None:
        self.device = device
        self.folder: Path | None = None
        self.random: tuple[str, int] | None = None
        self._shared: dict[Hashable, Any] = {}
        if source is not None:
            kind, _, rest = source.partition(":")
            if kind == "random":
                config, _, seed = rest.rpartition(":")
                self.random = (config, int(seed))
            else:
                self.folder = weights_folder(source, roots)

    @property
    def bytes(self) -> int:
        """On disk."""
        files = self.folder.glob("*.safetensors") if self.folder else ()
        return sum(path.stat().st_size for path in files)

    def context(
        self, options: Mapping[str, Scalar], progress: Callable[[int], None], capture: Capture | None = None
    ) -> LoadContext:
        return LoadContext(
            device=self.device,
            dtype=torch.float32 if self.device.type == "cpu" else torch.bfloat16,
            folder=self.folder,
            shared=self._shared,
            options=options,
            random=self.random,
            progress=progress,
            capture=capture,
        )
