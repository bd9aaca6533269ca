"""The vision transformer: packed pictures see themselves alone; the published names and size."""

import torch
from torch.nn import functional as F

from walkgraph.architectures.siglip_navit import SiglipNavit
from walkgraph.checkpoints.siglip import SiglipConfig
from walkgraph.layers.attention.dense_attention import BlockAttend
from walkgraph.layers.unset import unset
from walkgraph.models.bagel.config import BAGEL_7B_MOT

torch.set_num_threads(1)
TINY = SiglipConfig(width=8, hidden=12, layers=2, heads=2, patch=2, side=5)


def test_packed_pictures_equal_each_alone() -> None:
    torch.manual_seed(0)
    model, patches = SiglipNavit(TINY).vision_model, torch.randn(10, 12)
    ids = torch.randint(0, 25, (10,))
    together = model(patches, ids, BlockAttend([4, 6]))
    for rows in (slice(0, 4), slice(4, 10)):
        count = rows.stop - rows.start
        torch.testing.assert_close(together[rows], model(patches[rows], ids[rows], BlockAttend([count])))


def test_one_layer_is_the_written_out_one() -> None:
    torch.manual_seed(1)
    layer, x = SiglipNavit(TINY).vision_model.encoder.layers[0], torch.randn(3, 8)
    p = dict(layer.named_parameters())
    h = F.layer_norm(x, (8,), p["layer_norm1.weight"], p["layer_norm1.bias"], 1e-6)
    q, k, v = (h @ p[f"self_attn.{n}_proj.weight"].T + p[f"self_attn.{n}_proj.bias"] for n in "qkv")
    heads = [(q[:, s] @ k[:, s].T / 2).softmax(1) @ v[:, s] for s in (slice(0, 4), slice(4, 8))]
    y = x + torch.cat(heads, 1) @ p["self_attn.out_proj.weight"].T + p["self_attn.out_proj.bias"]
    h = F.layer_norm(y, (8,), p["layer_norm2.weight"], p["layer_norm2.bias"], 1e-6)
    h = h @ p["mlp.fc1.weight"].T + p["mlp.fc1.bias"]
    h = 0.5 * h * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3)))
    want = y + h @ p["mlp.fc2.weight"].T + p["mlp.fc2.bias"]
    torch.testing.assert_close(layer(0, x, BlockAttend([3])), want, rtol=1e-4, atol=1e-5)


def test_packed_weights_give_the_same_under_their_names() -> None:
    torch.manual_seed(2)
    model, patches, ids = SiglipNavit(TINY), torch.randn(10, 12), torch.randint(0, 25, (10,))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    want = model.vision_model(patches, ids, BlockAttend([4, 6]))
    model.pack()
    torch.testing.assert_close(model.vision_model(patches, ids, BlockAttend([4, 6])), want)
    assert before.keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    model.double()
    got = model.vision_model(patches.double(), ids, BlockAttend([4, 6]))
    torch.testing.assert_close(got, want.double(), rtol=1e-4, atol=1e-5)


def test_the_published_names() -> None:
    with unset():
        shapes = {name: tuple(t.shape) for name, t in SiglipNavit(BAGEL_7B_MOT.vit).state_dict().items()}
    expected = {
        "vision_model.embeddings.patch_embedding.weight": (1152, 588),
        "vision_model.embeddings.position_embedding.weight": (4900, 1152),
        "vision_model.encoder.layers.25.self_attn.out_proj.bias": (1152,),
        "vision_model.encoder.layers.0.mlp.fc1.weight": (4304, 1152),
        "vision_model.encoder.layers.0.layer_norm2.weight": (1152,),
        "vision_model.post_layernorm.bias": (1152,),
    }
    assert expected.items() <= shapes.items()
    assert not any(".layers.26." in name for name in shapes)
