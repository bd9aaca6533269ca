"""The operators of the FLUX autoencoder: pictures to latents, a cell of which is one token, and back."""

from collections.abc import Hashable, Sequence
from typing import Any, Self

import torch

from walkgraph.layers.patches import patchify, unpatchify
from walkgraph.networks.bagel import BagelConfig
from walkgraph.networks.bagel_pictures import picture_cells, shared_config
from walkgraph.networks.base import Call, CallFailed, Example, LoadContext, Operator, Outputs, States
from walkgraph.networks.checkpoint import load_autoencoder
from walkgraph.networks.flux_vae import AutoEncoder
from walkgraph.networks.presets import drawn


class VaeEncoder(Operator):
    """Gives the posterior's mean, where the published inference draws from the posterior: a picture's latents are
    always the same, and a run's seed decides about its noise alone."""

    def __init__(self, model: AutoEncoder, config: BagelConfig, device: torch.device) -> None:
        self._model, self._config, self._device = model, config, device

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_autoencoder(context), shared_config(context), context.device)

    def bucket(self, call: Call) -> Hashable:
        return call.inputs["pixels"].shape

    def rows(self, call: Call) -> int:
        return picture_cells(call, self._config.pixels_per_token, self._config.latent_side)[2]

    def examples(self) -> Sequence[Example]:
        side = 2 * self._config.pixels_per_token
        return (Example(inputs={"pixels": torch.zeros(3, side, side)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        height, width, _ = picture_cells(calls[0], self._config.pixels_per_token, self._config.latent_side)
        z = self._model.encode(torch.stack([call.inputs["pixels"] for call in calls]).float())
        return [{"latents": rows.unflatten(0, (height, width))} for rows in patchify(z, self._config.latent_patch)]


class VaeDecoder(Operator):
    def __init__(self, model: AutoEncoder, config: BagelConfig) -> None:
        self._model, self._config = model, config

    @classmethod
    def load(cls, context: LoadContext) -> Self:
        return cls(_autoencoder(context), shared_config(context))

    def bucket(self, call: Call) -> Hashable:
        return call.inputs["latents"].shape

    def rows(self, call: Call) -> int:
        height, width, _ = call.inputs["latents"].shape
        return height * width

    def examples(self) -> Sequence[Example]:
        return (Example(inputs={"latents": torch.zeros(2, 2, self._config.latent_channels)}),)

    def forward(self, calls: Sequence[Call], states: States) -> list[Outputs]:
        height, width, channels = calls[0].inputs["latents"].shape
        if channels != self._config.latent_channels:
            raise CallFailed(f"`{calls[0].node}` takes cells of {self._config.latent_channels} numbers, not {channels}")
        rows = torch.stack([call.inputs["latents"].flatten(0, 1) for call in calls]).float()
        return [{"pixels": p} for p in self._model.decode(unpatchify(rows, self._config.latent_patch, height, width))]


def _autoencoder(context: LoadContext) -> AutoEncoder:
    """In float32 on every device, as the published model runs it."""
    config = shared_config(context)
    on: dict[str, Any] = {"device": context.device, "dtype": torch.float32}
    return context.once(
        AutoEncoder,
        lambda name, seed: drawn(lambda: AutoEncoder(config.vae), seed, **on),
        lambda folder: load_autoencoder(folder, config, **on, progress=context.progress),
    )
