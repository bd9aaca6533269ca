"""The operator that paints a running picture."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.latent_preview import LatentPreview
from walkgraph.errors import Refused
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.vae_operators import cells_of, grid_of, packed_vae, pixels_spec, squares
from walkgraph.models.bagel.weights import shared_config


class Preview(Operator):
    options: ClassVar[tuple[str, ...]] = ("detail",)

    def __init__(self, preview: LatentPreview, config: BagelConfig) -> None:
        self._preview, self._config = preview, config

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config, detail = shared_config(context), int(context.options.get("detail", 2))
        if config.vae.downsample % detail:
            raise Refused(f"`detail` must divide {config.vae.downsample}, the pixels of a latent one, and is {detail}")
        with torch.inference_mode():
            side = config.latent_side * config.latent_patch
            return cls(LatentPreview.fitted(packed_vae(context), detail, side, context.device), config)

    def bucket(self, call: Call) -> Hashable:
        return call.inputs["latents"].shape

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"latents": torch.zeros(2, 2, self._config.latent_channels)}),)

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        return call.inputs

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        return squares(self._config)

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        return pixels_spec(inputs, self._config, self._config.latent_patch * self._preview.detail)

    def step(self, batch: StepBatch) -> StepOutputs:
        return StepOutputs({"pixels": self._paint(batch.inputs["latents"])})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        latents = torch.stack([cells_of(call, self._config) for call in calls])
        return [{"pixels": pixels} for pixels in self._paint(latents)]

    def _paint(self, latents: Tensor) -> Tensor:
        """`[B, h, w, c]` -> `[B, 3, H, W]`"""
        return self._preview(grid_of(latents, self._config))
