"""BAGEL's weights in the published layout: `ema` holds the model, `ae` its autoencoder."""

from pathlib import Path

import torch

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.weights import Progress, load
from walkgraph.models.bagel.config import BagelConfig, read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import bagel_config


def shared_config(context: LoadContext) -> BagelConfig:
    """That of the weight set, which its operators share."""
    return context.once(BagelConfig, lambda name, seed: bagel_config(name), read_bagel)


def load_bagel(
    folder: Path,
    config: BagelConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> Bagel:
    """The model without its autoencoder, on `device`; strict."""
    return load(lambda: Bagel(config), folder, "ema", device=device, dtype=dtype, progress=progress)


def load_autoencoder(
    folder: Path,
    config: BagelConfig,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> AutoEncoder:
    return load(lambda: AutoEncoder(config.vae), folder, "ae", device=device, dtype=dtype, progress=progress)
