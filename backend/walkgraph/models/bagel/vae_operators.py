"""The operators of the FLUX autoencoder: pictures to latents (one token per cell) and back, and previews of a running
picture."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from walkgraph.abi.calls import Call, CallFailed, Outputs, Scalar
from walkgraph.abi.operator import Example, LoadContext, Operator
from walkgraph.abi.states import States
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.flux_vae_packed import PackedVae
from walkgraph.architectures.latent_preview import LatentPreview
from walkgraph.errors import Refused
from walkgraph.layers.pictures.patches import patchify, unpatchify
from walkgraph.models.bagel.config import BagelConfig
from walkgraph.models.bagel.rows import picture_cells
from walkgraph.models.bagel.weights import load_autoencoder, shared_config

_PIXELS = 2**20
"""The most pixels computed at once: the memory for the largest picture serves all batches."""


class VaeEncoder(Operator):
    """Returns the posterior's mean, where the published inference samples from the posterior: a picture always has the
    same latents, and a run's seed affects only its noise."""

    pure: ClassVar[bool] = True

    def __init__(self, model: PackedVae, config: BagelConfig) -> None:
        self._model, self._config = model, config

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(packed_vae(context), shared_config(context))

    def bucket(self, call: Call) -> Hashable:
        return call.inputs["pixels"].shape

    def rows(self, call: Call) -> int:
        return picture_cells(call, self._config.pixels_per_token, self._config.latent_side)[2]

    def examples(self) -> Sequence[Example]:
        side = 2 * self._config.pixels_per_token
        return (Example(inputs={"pixels": torch.zeros(3, side, side)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        height, width, cells = picture_cells(calls[0], self._config.pixels_per_token, self._config.latent_side)
        pixels = [call.inputs["pixels"].float() for call in calls]
        z = _in_parts(self._model.encode, pixels, cells * self._config.pixels_per_token**2)
        return [{"latents": rows.unflatten(0, (height, width))} for rows in patchify(z, self._config.latent_patch)]


class FromLatents(Operator):
    """Latents to pixels. Square pictures of the largest side and of half of it have a step."""

    pure: ClassVar[bool] = True

    def __init__(self, paint: Callable[[Tensor], Tensor], config: BagelConfig, side: int) -> None:
        """`paint`: grids in the autoencoder's layout -> pixels, `side` per side of a cell."""
        self._paint, self._config, self._side = paint, config, side

    def bucket(self, call: Call) -> Hashable:
        return call.inputs["latents"].shape

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"latents": torch.zeros(2, 2, self._config.latent_channels)}),)

    def step_inputs(self, call: Call) -> Mapping[str, Any] | None:
        return call.inputs

    def step_examples(self) -> Sequence[Mapping[str, Any]]:
        """Latents of the most requested pictures."""
        sides = (self._config.latent_side, self._config.latent_side // 2)
        return tuple({"latents": torch.zeros(side, side, self._config.latent_channels)} for side in sides if side)

    def step_spec(self, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
        latents = inputs.get("latents")
        if not isinstance(latents, Tensor) or latents.dim() != 3 or latents.shape[2] != self._config.latent_channels:
            return None
        height, width, _ = latents.shape
        return StepSpec(
            inputs={"latents": Row(tuple(latents.shape), torch.float32)},
            outputs={"pixels": Row((3, height * self._side, width * self._side), torch.float32)},
            # Pictures leave one by one: a batch would delay the first, and one picture already fills a GPU.
            sizes=(1,),
            pure=True,
        )

    def step(self, batch: StepBatch) -> StepOutputs:
        return StepOutputs({"pixels": self._painted(batch.inputs["latents"])})

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        latents = torch.stack([cells_of(call, self._config) for call in calls])
        return [{"pixels": pixels} for pixels in self._painted(latents)]

    def _painted(self, latents: Tensor) -> Tensor:
        """`[B, h, w, c]` -> `[B, 3, H, W]`"""
        return self._paint(grid_of(latents, self._config))


class VaeDecoder(FromLatents):
    def __init__(self, model: PackedVae, config: BagelConfig) -> None:
        super().__init__(model.decode, config, config.pixels_per_token)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(packed_vae(context), shared_config(context))

    def rows(self, call: Call) -> int:
        height, width, _ = call.inputs["latents"].shape
        return height * width

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        latents = [cells_of(call, self._config) for call in calls]
        size = latents[0].shape[0] * latents[0].shape[1] * self._config.pixels_per_token**2
        return [{"pixels": pixels} for pixels in _in_parts(self._painted, latents, size)]


class Preview(FromLatents):
    """Paints a preview of a running picture."""

    options: ClassVar[tuple[str, ...]] = ("detail",)

    def __init__(self, preview: LatentPreview, config: BagelConfig) -> None:
        super().__init__(preview, config, config.latent_patch * preview.detail)

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        config, detail = shared_config(context), int(context.options.get("detail", 2))
        if config.vae.downsample % detail:
            raise Refused(f"`detail` must divide {config.vae.downsample}, the pixels of a latent one, and is {detail}")
        with torch.inference_mode():
            side = config.latent_side * config.latent_patch
            return cls(LatentPreview.fitted(packed_vae(context), detail, side, context.device), config)


def grid_of(latents: Tensor, config: BagelConfig) -> Tensor:
    """`[B, h, w, c]`, one cell per token -> float32 `[B, z, h * p, w * p]`, the autoencoder's layout."""
    _, height, width, _ = latents.shape
    return unpatchify(latents.flatten(1, 2).float(), config.latent_patch, height, width)


def cells_of(call: Call, config: BagelConfig) -> Tensor:
    """The call's latents `[h, w, c]`. Raises CallFailed for any other shape."""
    latents = call.inputs["latents"]
    if latents.dim() != 3 or latents.shape[2] != config.latent_channels:
        wanted = f"`{call.node}` takes latents `[h, w, {config.latent_channels}]`"
        raise CallFailed(f"{wanted}, cells of {config.latent_channels} numbers, not {list(latents.shape)}", "latents")
    return latents


def packed_vae(context: LoadContext) -> PackedVae:
    """Read or drawn in float32, then served in the rank's type."""
    config = shared_config(context)
    on: dict[str, Any] = {"device": context.device, "dtype": torch.float32}
    return context.once(
        PackedVae,
        lambda name, seed: PackedVae(drawn(lambda: AutoEncoder(config.vae), seed, **on), context.dtype),
        lambda folder: PackedVae(load_autoencoder(folder, config, **on, progress=context.progress), context.dtype),
    )


def _in_parts(work: Callable[[Tensor], Tensor], values: Sequence[Tensor], pixels: int) -> Tensor:
    """Apply the work in batches of at most _PIXELS; each value stands for `pixels` pixels."""
    most = max(1, _PIXELS // pixels)
    parts = [work(torch.stack(list(values[start : start + most]))) for start in range(0, len(values), most)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
