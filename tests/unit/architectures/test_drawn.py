from __future__ import annotations

import pytest
import torch

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.flux_vae import AutoEncoder
from walkgraph.errors import NotFound
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.presets import BAGEL, bagel_config

CPU = torch.device("cpu")


def tiny(seed: int) -> dict[str, torch.Tensor]:
    return drawn(lambda: Bagel(BAGEL["bagel-tiny"]), seed, device=CPU, dtype=torch.float32).state_dict()


def test_every_tensor_is_drawn_and_depends_on_seed_and_name_alone() -> None:
    one, again, other = tiny(1), tiny(1), tiny(2)
    for name, tensor in one.items():
        assert torch.equal(tensor, again[name])
        assert not torch.equal(tensor, other[name])
        assert tensor.ne(0).all(), name
        assert tensor.isfinite().all()
    alike = [name for name, tensor in one.items() if tensor.shape == (32, 32)]
    assert len(alike) > 4
    assert len({one[name].sum().item() for name in alike}) == len(alike)


def test_a_decoded_picture_is_finite_and_not_flat() -> None:
    config = BAGEL["bagel-tiny"]
    vae = drawn(lambda: AutoEncoder(config.vae), 0, device=CPU, dtype=torch.float32)
    picture = vae.decode(torch.randn(1, 4, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert picture.isfinite().all()
    assert float(picture.std()) > 0.01


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFound, match="bagel-tiny"):
        bagel_config("bagel-huge")
