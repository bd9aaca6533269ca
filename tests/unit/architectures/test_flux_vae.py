"""The autoencoder: the published names, shapes and size; its posterior; its attention."""

import pytest
import torch
from torch.nn import functional as F

from walkgraph.architectures.flux_vae import AttnBlock, AutoEncoder, Downsample
from walkgraph.checkpoints.flux_vae import VaeConfig
from walkgraph.layers.unset import unset
from walkgraph.models.bagel.config import BAGEL_7B_MOT

torch.set_num_threads(1)
TINY = VaeConfig(
    channels=8, multipliers=(1, 2, 2), blocks=1, latent_channels=4, shift=0.1, scale=0.5, norm_groups=4
)  # fmt: skip


def tiny() -> AutoEncoder:
    torch.manual_seed(0)
    return AutoEncoder(TINY).eval().requires_grad_(False)


def test_the_published_size_and_names() -> None:
    with unset():
        shapes = {name: tuple(t.shape) for name, t in AutoEncoder(BAGEL_7B_MOT.vae).state_dict().items()}
    sizes = {
        side: sum(torch.Size(s).numel() for n, s in shapes.items() if n.startswith(side)) for side in ("enc", "dec")
    }
    assert sizes == {"enc": 34_274_208, "dec": 49_545_475}
    expected = {
        "encoder.conv_in.weight": (128, 3, 3, 3),
        "encoder.down.0.block.1.norm2.weight": (128,),
        "encoder.down.1.block.0.nin_shortcut.weight": (256, 128, 1, 1),
        "encoder.down.2.downsample.conv.weight": (512, 512, 3, 3),
        "encoder.mid.attn_1.proj_out.weight": (512, 512, 1, 1),
        "encoder.conv_out.weight": (32, 512, 3, 3),
        "decoder.conv_in.weight": (512, 16, 3, 3),
        "decoder.mid.block_2.conv2.weight": (512, 512, 3, 3),
        "decoder.up.0.block.0.nin_shortcut.weight": (128, 256, 1, 1),
        "decoder.up.1.block.0.nin_shortcut.weight": (256, 512, 1, 1),
        "decoder.up.3.block.2.conv1.weight": (512, 512, 3, 3),
        "decoder.up.1.upsample.conv.weight": (256, 256, 3, 3),
        "decoder.norm_out.weight": (128,),
        "decoder.conv_out.weight": (3, 128, 3, 3),
    }
    assert expected.items() <= shapes.items()
    assert not {"encoder.down.3.downsample.conv.weight", "decoder.up.0.upsample.conv.weight"} & shapes.keys()


def test_sides_shrink_by_the_downsampling_and_come_back() -> None:
    z = tiny().encode(torch.rand(2, 3, 16, 24) * 2 - 1)
    assert z.shape == (2, 4, 4, 6)
    assert tiny().decode(z).shape == (2, 3, 16, 24)
    assert TINY.downsample == 4
    assert BAGEL_7B_MOT.vae.downsample == 8


def test_a_sample_is_the_mean_plus_its_noise_scaled_and_shifted() -> None:
    model, images = tiny(), torch.rand(1, 3, 8, 8) * 2 - 1
    mean, log_variance = model.posterior(images)
    noise = torch.randn_like(mean)
    torch.testing.assert_close(model.encode(images), 0.5 * (mean - 0.1))
    want = 0.5 * (mean + (0.5 * log_variance).exp() * noise - 0.1)
    torch.testing.assert_close(model.encode(images, noise), want)
    torch.testing.assert_close(model.decode(0.5 * (mean - 0.1)), model.decoder(mean), rtol=1e-4, atol=1e-5)


def test_a_downsampling_pads_right_and_below() -> None:
    torch.manual_seed(1)
    layer, x = Downsample(4), torch.randn(1, 4, 6, 6)
    want = F.conv2d(F.pad(x, (0, 1, 0, 1)), layer.conv.weight, layer.conv.bias, stride=2)
    torch.testing.assert_close(layer(x), want)


def test_attention_mixes_all_pixels_with_one_head() -> None:
    torch.manual_seed(2)
    layer, x = AttnBlock(8, 4), torch.randn(1, 8, 3, 2)
    h = F.group_norm(x, 4, layer.norm.weight, layer.norm.bias, 1e-6)[0].flatten(1)
    q, k, v = (conv.weight[:, :, 0, 0] @ h + conv.bias[:, None] for conv in (layer.q, layer.k, layer.v))
    mixed = v @ (q.T @ k / 8**0.5).softmax(1).T
    out = layer.proj_out.weight[:, :, 0, 0] @ mixed + layer.proj_out.bias[:, None]
    torch.testing.assert_close(layer(x), x + out.view(1, 8, 3, 2), rtol=1e-4, atol=1e-5)


def test_groups_must_divide_the_widths() -> None:
    with pytest.raises(ValueError, match="32 groups"):
        VaeConfig(channels=24, multipliers=(1, 2), blocks=1, latent_channels=4, shift=0, scale=1)
