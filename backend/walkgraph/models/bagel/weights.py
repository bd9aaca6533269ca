"""BAGEL's weights in the published layout: `ema` holds the model, `ae` its autoencoder."""

from pathlib import Path
from typing import Unpack

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.architectures.weights import Loading, load
from walkgraph.models.bagel.config import BagelConfig, read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import bagel_config


def shared_config(context: LoadContext) -> BagelConfig:
    """The config of the weight set, shared by its operators."""
    return context.once(BagelConfig, lambda name, seed: bagel_config(name), read_bagel)


def load_bagel(folder: Path, config: BagelConfig, **on: Unpack[Loading]) -> Bagel:
    """Load the model without its autoencoder; strict."""
    return load(lambda: Bagel(config), folder, "ema", **on)


def load_autoencoder(folder: Path, config: BagelConfig, **on: Unpack[Loading]) -> AutoEncoder:
    return load(lambda: AutoEncoder(config.vae), folder, "ae", **on)
