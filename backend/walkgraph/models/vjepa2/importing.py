"""V-JEPA 2-AC: an encoder and a predictor, each in a file of its own."""

import re
from collections.abc import Iterable, Iterator

from walkgraph.checkpoints.contents import Contents
from walkgraph.checkpoints.family import Document, Family, Part, Published, Shapes, linear, norm
from walkgraph.checkpoints.files import Shape
from walkgraph.models.vjepa2.config import FORMAT, TransformerConfig, read_vjepa2
from walkgraph.models.vjepa2.names import encoder_names, public_names

_TUBELET, _ACTION, _EXTRINSICS = 2, 7, 6


def _recognises(contents: Contents) -> bool:
    both = {"encoder", "predictor"} <= contents.weights.keys()
    return contents.config.get("format") == FORMAT or contents.config.get("model_type") == "vjepa2" or both


def _parts(contents: Contents) -> list[Part]:
    config = read_vjepa2(contents.folder)
    return [
        Part("encoder", dict(_encoder(config.encoder, config.patch)), _encoder_names),
        Part("predictor", dict(_predictor(config.predictor, config.encoder.width)), _predictor_names),
    ]


def _encoder(sizes: TransformerConfig, patch: int) -> Iterator[tuple[str, Shape]]:
    yield "patch_embed.proj.weight", (sizes.width, 3, _TUBELET, patch, patch)
    yield "patch_embed.proj.bias", (sizes.width,)
    yield from _blocks("blocks", sizes)
    yield from norm("norm", sizes.width)


def _predictor(sizes: TransformerConfig, features: int) -> Iterator[tuple[str, Shape]]:
    width = sizes.width
    yield from linear("predictor_embed", width, features)
    for name, into in (("action", _ACTION), ("state", _ACTION), ("extrinsics", _EXTRINSICS)):
        yield from linear(f"{name}_encoder", width, into)
    yield from _blocks("predictor_blocks", sizes)
    yield from norm("predictor_norm", width)
    yield from linear("predictor_proj", features, width)


def _blocks(name: str, sizes: TransformerConfig) -> Iterator[tuple[str, Shape]]:
    width, hidden = sizes.width, sizes.hidden
    for layer in range(sizes.layers):
        at = f"{name}.{layer}"
        yield from norm(f"{at}.norm1", width)
        yield from norm(f"{at}.norm2", width)
        yield from linear(f"{at}.attn.qkv", 3 * width, width)
        yield from linear(f"{at}.attn.proj", width, width)
        yield from linear(f"{at}.mlp.fc1", hidden, width)
        yield from linear(f"{at}.mlp.fc2", width, hidden)


def _predictor_names(found: Shapes) -> Shapes:
    return dict(public_names("predictor", found.items()))


def _encoder_names(found: Shapes) -> Shapes:
    names: Shapes = {}
    apart: dict[str, list[Shape]] = {}
    for (name, part), shape in encoder_names(found.items()):
        if part is None:
            names[name] = shape
        else:
            apart.setdefault(name, []).append(shape)
    for name, shapes in apart.items():
        names[name] = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    return names


def _adapt(document: Document, contents: Contents) -> Iterable[str]:
    """Set the size of pictures, and the tokens per frame, to the encoder's."""
    config = read_vjepa2(contents.folder)
    document["nodes"]["picture_in"]["params"]["size"] = config.pixels
    for state in document["states"].values():
        if "capacity" in state:
            state["capacity"] = re.sub(r"^258 \*", f"{config.tokens} *", state["capacity"])
    return ()


FAMILY = Family(
    name="vjepa2",
    title="V-JEPA 2-AC",
    graph="vjepa2_ac",
    weights="vjepa2",
    kinds=("vjepa2", "VJEPA2Model"),
    recognises=_recognises,
    parts=_parts,
    adapt=_adapt,
    published=(
        Published(
            "facebookresearch/vjepa2",
            "vjepa2-ac-vitg",
            11_800_000_000,
            ("encoder.safetensors", "predictor.safetensors"),
            "It is published as a pickle, `vjepa2-ac-vitg.pt`, which Walkgraph doesn't read: convert it in the folder.",
        ),
    ),
)
