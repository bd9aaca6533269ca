"""pi0.5: cameras, prompts, prefixes, velocities and actions, by modules and by the bundled graph."""

import importlib
import json
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden import bagel_tiny, make_pi05
from tests.golden import pi05_tiny as tiny
from tests.golden.compare.table import DRAWN, SAME, Case
from tests.golden.compare.vjepa2 import PLACEMENT
from tests.golden.pictures import png
from tests.golden.vjepa2_tiny import shot
from tests.support.local import LocalDeployment
from tests.unit.engine.plans import call
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.graph import codec
from walkgraph.layers.pictures.patches import to_levels
from walkgraph.models.pi05.config import read_pi05
from walkgraph.models.pi05.model import Pi05, Prefix
from walkgraph.models.pi05.operators import Camera
from walkgraph.models.pi05.weights import load_pi05
from walkgraph.placement.document import decode
from walkgraph.resources import bundled

C = tiny.CONFIG
_SIDE = 224
_PICTURES = {"hd": (1280, 720), "vga": (640, 480), "upright": (270, 481), "small": (61, 40), "same": (_SIDE, _SIDE)}
_SIZES = 60
_TASK = " put_the red\nblock away "
_STATE = np.array([0.5, -1.0, 0.999, 1.3, -0.25, 0.0])
_SEED = 7
_REQUESTS = {"three cameras": (True, True, True), "two cameras": (True, False, True), "no camera": (False,) * 3}


class _Whatever:
    """Stands for a name in a training module that is imported but never used."""

    def __class_getitem__(cls, _of: Any) -> Any:
        return Any


_ABSENT = {
    "jax": {},
    "flax": {},
    "flax.traverse_util": {},
    "orbax": {},
    "orbax.checkpoint": {},
    "sentencepiece": {},
    "numpydantic": {"NDArray": Any},
    "openpi.models.utils": {},
    "openpi.models.utils.fsq_tokenizer": {},
    "openpi.shared.download": {},
    "openpi.shared.array_typing": {"PyTree": _Whatever},
}
"""Modules that the published transforms import for what isn't asked of them here."""


def cases(code: Path) -> Iterator[Case]:
    model, shapes = make_pi05.built(code)
    with tempfile.TemporaryDirectory() as name:
        folder = tiny.write_folder(Path(name) / "pi05-tiny")
        assert sorted(shapes) == sorted(tiny.answers()["shapes"].tolist())
        ours = load_pi05(folder, read_pi05(folder))
        for key, asked in tiny.ASKED.items():
            yield from _padded(key, asked, ours, model)
            yield from _alone(key, asked, ours, model)
        transforms = _transforms(code)
        yield from _pictures(transforms)
        yield from _served(transforms, model, folder)


def _noises(asked: tiny.Asked) -> Tensor:
    return torch.stack([tiny.noise(row) for row in range(len(asked.lengths))])


def _padded(key: str, asked: tiny.Asked, ours: Pi05, model: Any) -> Iterator[Case]:
    """With text padded and cameras masked, as the published code does it."""
    wanted = make_pi05.answered(model, asked)
    images, masks, ids, _, _ = make_pi05.observed(asked)
    given = images, ids, torch.tensor(asked.lengths), torch.stack(masks, 1)
    prefix = ours.read(*ours.laid(*given))
    assert prefix.valid is not None
    valid = prefix.valid
    yield Case(f"{key}: positions that are read", valid, wanted["valid"], SAME)
    for layer in (0, C.layers - 1):
        for part, got in zip("kv", prefix.kv[layer], strict=True):
            yield Case(f"{key}: {part} of layer {layer}", got[valid], wanted[f"{part}{layer}"][valid.numpy()])
    noise = _noises(asked)
    for at in tiny.TIMES:
        times = torch.full((len(noise),), at)
        yield Case(
            f"{key}: velocity at {at}", ours.denoise(noise, ours.modulations(times), prefix), wanted[f"velocity{at}"]
        )
    yield Case(f"{key}: actions after ten steps", _flown(ours, prefix, noise), wanted["actions"], DRAWN)
    actions = torch.stack([tiny.noise(100 + row) for row in range(len(noise))])
    time = torch.tensor(tiny.TIMES[: len(noise)])
    at = time[:, None, None]
    flow = ours(*given[:3], at * noise + (1 - at) * actions, time, given[3])
    yield Case(
        f"{key}: loss of training", (noise - actions - flow.velocity).square(), make_pi05.joint(model, asked), DRAWN
    )


def _alone(key: str, asked: tiny.Asked, ours: Pi05, model: Any) -> Iterator[Case]:
    """A row at a time, with what is there alone."""
    wanted = make_pi05.answered(model, asked)
    found = [
        _flown(ours, ours.read(*ours.laid(cameras, tiny.ids(row, length)[None], None)), tiny.noise(row)[None])[0]
        for row, length in enumerate(asked.lengths)
        for cameras in [[tiny.pixels(row, at)[None] for at, there in enumerate(asked.present[row]) if there]]
    ]
    yield Case(f"{key}: actions without what is masked", found, wanted["actions"], DRAWN)


def _flown(ours: Pi05, prefix: Prefix, x: Tensor) -> Tensor:
    for step in ours.modulations(1 - torch.arange(tiny.STEPS) / tiny.STEPS):
        x = x - ours.denoise(x, step.expand(len(x), -1, -1, -1), prefix) / tiny.STEPS
    return x


def _transforms(code: Path) -> types.SimpleNamespace:
    """The published modules that prepare a request; `published` of `make_pi05` has laid their packages."""
    importlib.import_module("openpi.shared")
    for name, own in _ABSENT.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(own)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, sys.modules[name])
    sys.path.insert(0, str(code / "packages" / "openpi-client" / "src"))
    client, tokenizer, transforms, normalize = (
        importlib.import_module(name)
        for name in ("openpi_client.image_tools", "openpi.models.tokenizer", "openpi.transforms",
                     "openpi.shared.normalize")
    )  # fmt: skip
    return types.SimpleNamespace(client=client, tokenizer=tokenizer, transforms=transforms, normalize=normalize)


def _seen(levels: np.ndarray, side: int) -> Tensor:
    states: Any = None
    [out] = Camera(side).forward([call("camera", {"image": png(levels)})], states)
    return out["pixels"]


def _pictures(theirs: types.SimpleNamespace) -> Iterator[Case]:
    def case(name: str, size: tuple[int, int]) -> Case:
        levels = shot(*size)
        wanted = theirs.client.resize_with_pad(levels, _SIDE, _SIDE)
        return Case(f"pixels, {name}", to_levels(_seen(levels, _SIDE)), wanted, SAME)

    for name, (width, height) in _PICTURES.items():
        yield case(f"{name}, {width} by {height}", (width, height))
    dice = np.random.default_rng(5)
    drawn = [tuple(map(int, dice.integers(1, 700, 2))) for _ in range(_SIZES)]
    # The published transform fails where a side would have less than one pixel.
    each = [case("", (width, height)) for width, height in drawn if max(width, height) < _SIDE * min(width, height)]
    yield max(each, key=lambda one: one.off)._replace(name=f"pixels, the worst of {len(each)} shapes at random")


def _served(theirs: types.SimpleNamespace, model: Any, folder: Path) -> Iterator[Case]:
    """Requests by the graph: cameras of any shape, a text and a raw state in, actions in the robot's units out."""
    state, actions = ((np.linspace(-1, -0.4, 6), np.linspace(0.7, 1.6, 6)), (np.linspace(-3, -1, 6), np.full(6, 2.5)))
    quantiles = {
        name: {"q01": [*low], "q99": [*high]} for name, (low, high) in (("state", state), ("actions", actions))
    }
    (folder / "norm_stats.json").write_text(json.dumps({"norm_stats": quantiles}))
    bagel_tiny.write_tokenizer(folder)
    local = _deployed(folder)
    stats = {
        name: theirs.normalize.NormStats(mean=0 * low, std=1 + 0 * low, q01=low, q99=high)
        for name, (low, high) in (("state", state), ("actions", actions))
    }
    inside = theirs.transforms.Normalize(None)._normalize_quantile(_STATE, stats["state"])
    ids = _ids(theirs, folder, inside)
    shots = [shot(*size) for size in ((128, 72), (48, 64), (31, 31))]
    pixels = [theirs.client.resize_with_pad(levels, C.picture, C.picture) for levels in shots]
    images = [torch.from_numpy(p).movedim(2, 0)[None].float() / 255 * 2 - 1 for p in pixels]
    noise = torch.randn(1, tiny.HORIZON, C.action_width, generator=torch.Generator().manual_seed(_SEED))
    for name, present in _REQUESTS.items():
        seen = {c: [png(levels)] for c, levels, there in zip(tiny.CAMERAS, shots, present, strict=True) if there}
        given = {**seen, "instruction": [_TASK], "state": [torch.from_numpy(_STATE)]}
        params = {"horizon": tiny.HORIZON, "action_width": C.action_width, "steps": tiny.STEPS, "seed": _SEED}
        local.submit(name, "act", params, given)
        local.run()
        assert not local.failed, local.failed
        masks = [torch.tensor([there]) for there in present]
        drawn = _sampled(model, images, masks, ids, noise)
        unnormalise = theirs.transforms.Unnormalize(None)._unnormalize_quantile
        wanted = unnormalise(drawn[0].numpy(), stats["actions"])
        yield Case(f"request with {name}", torch.as_tensor(local.outputs[name]["actions"][0]), wanted, DRAWN)


def _deployed(folder: Path) -> LocalDeployment:
    document = json.loads(bundled("graphs")["pi05"].read_text())
    document["weights"]["pi05"]["source"] = f"checkpoint:{folder.name}"
    document["nodes"]["noise"]["params"]["width"] = C.action_width
    return LocalDeployment(codec.load(document), decode(PLACEMENT), threads=1, roots=[folder.parent])


def _ids(theirs: types.SimpleNamespace, folder: Path, inside: np.ndarray) -> Tensor:
    """int64 `[1, n]`: what the published prompt says, in the tokens of the folder's vocabulary."""
    vocabulary = Trained(folder / "vocab.json", plain=True)
    tokenizer = object.__new__(theirs.tokenizer.PaligemmaTokenizer)
    tokenizer._tokenizer = types.SimpleNamespace(
        encode=lambda text, add_bos: [C.bos] * add_bos + vocabulary.encode(text)
    )
    tokenizer._max_len = 400
    tokens, there = tokenizer.tokenize(_TASK, inside)
    return torch.from_numpy(np.asarray(tokens, dtype=np.int64)[there])[None]


def _sampled(model: Any, images: list[Tensor], masks: list[Tensor], ids: Tensor, noise: Tensor) -> Tensor:
    state = torch.zeros(1, C.action_width)
    prepared = images, masks, ids, torch.ones_like(ids, dtype=torch.bool), state
    model._preprocess_observation = lambda observation, train: prepared
    return model.sample_actions("cpu", types.SimpleNamespace(state=state), noise, num_steps=tiny.STEPS)
