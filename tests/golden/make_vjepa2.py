"""Writes `vjepa2_tiny.npz`: what the published V-JEPA 2 code computes from the weights of `vjepa2_tiny.py`.

    PYTHONPATH=backend python tests/golden/make_vjepa2.py CODE

`CODE` is a checkout of github.com/facebookresearch/vjepa2 (c2963a4 was used). Nothing of it is in this repository, and
it wants packages that this project doesn't have: scipy 1.17, einops, tqdm. What it uses in training alone is left out
here: a function of timm, torchvision and OpenCV. Noise is given to its planner.
"""

import contextlib
import sys
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.golden import vjepa2_tiny as tiny

Answers = dict[str, np.ndarray]
_TRAINING: dict[str, dict[str, Any]] = {
    "timm": {},
    "timm.models": {},
    "timm.models.layers": {"drop_path": None},
    "torchvision": {},
    "torchvision.transforms": {"Compose": list},
    "torchvision.transforms.functional": {},
    "cv2": {},
}
"""Modules that training alone calls, and what is read of them without a call that matters."""
MEAN, DEVIATION = (torch.tensor(numbers)[:, None, None] for numbers in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


def published(code: Path) -> types.SimpleNamespace:
    for name, own in _TRAINING.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(own)
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, sys.modules[name])
    torch.backends.cuda.sdp_kernel = contextlib.nullcontext  # chooses kernels of GPUs
    sys.path[:0] = [str(code), str(code / "notebooks")]
    from app.vjepa_droid.transforms import make_transforms
    from src.models.ac_predictor import VisionTransformerPredictorAC
    from src.models.vision_transformer import VisionTransformer
    from utils import mpc_utils, world_model_wrapper

    return types.SimpleNamespace(
        Encoder=VisionTransformer,
        Predictor=VisionTransformerPredictorAC,
        mpc=mpc_utils,
        wrapper=world_model_wrapper,
        make_transforms=make_transforms,
    )


def build(code: types.SimpleNamespace) -> tuple[nn.Module, nn.Module]:
    config = tiny.CONFIG
    common: dict[str, Any] = {
        "img_size": (config.pixels, config.pixels),
        "patch_size": config.patch,
        "num_frames": 16,
        "tubelet_size": 2,
        "use_rope": True,
        "norm_layer": partial(nn.LayerNorm, eps=1e-6),
    }
    a, b = config.encoder, config.predictor
    encoder = code.Encoder(embed_dim=a.width, depth=a.layers, num_heads=a.heads, mlp_ratio=a.hidden / a.width, **common)
    predictor = code.Predictor(
        embed_dim=a.width,
        predictor_embed_dim=b.width,
        depth=b.layers,
        num_heads=b.heads,
        mlp_ratio=b.hidden / b.width,
        **common,
    )
    whole = tiny.weights()
    for part, module in (("encoder", encoder), ("predictor", predictor)):
        state = {n.removeprefix(f"{part}."): t for n, t in whole.items() if n.startswith(f"{part}.")}
        module.load_state_dict(state, strict=True)
        module.eval()
    return encoder, predictor


def world(code: types.SimpleNamespace, encoder: nn.Module, predictor: nn.Module) -> Any:
    return code.wrapper.WorldModel(
        encoder, predictor, tiny.CONFIG.patches, transform=lambda clip: torch.from_numpy(clip)[0][:, None], device="cpu"
    )


def seen(model: Any) -> list[Tensor]:
    """Each picture as the published application encodes it."""
    standard = [((picture + 1) / 2 - MEAN) / DEVIATION for picture in tiny.pictures()]
    return [model.encode(picture.numpy()) for picture in standard]


def encoded(encoder: nn.Module, model: Any) -> Answers:
    clips = torch.stack([((p + 1) / 2 - MEAN) / DEVIATION for p in tiny.pictures()])[:, :, None].repeat(1, 1, 2, 1, 1)
    return {
        "encoded": encoder(clips).numpy(),
        "masked": encoder(clips, masks=tiny.kept()).numpy(),
        "seen": torch.cat(seen(model)).numpy(),
    }


def transform(code: types.SimpleNamespace, side: int) -> Any:
    """As the published notebook makes it for a robot's camera: nothing at random."""
    whole = {"random_resize_aspect_ratio": (1.0, 1.0), "random_resize_scale": (1.0, 1.0)}
    return code.make_transforms(random_horizontal_flip=False, crop_size=side, **whole)


def shown(code: types.SimpleNamespace, encoder: nn.Module) -> Answers:
    """Pixels and features of pictures that are no squares of the encoder's side."""
    found: Answers = {}
    model = world(code, encoder, encoder)
    model.transform = transform(code, tiny.CONFIG.pixels)
    for name, size in tiny.SHOTS.items():
        found[f"shot/{name}"] = model.encode(tiny.shot(*size))[0].numpy()
    for name, size in tiny.CAMERAS.items():
        pixels = transform(code, tiny.PUBLISHED_SIDE)(tiny.shot(*size)[None])
        found[f"camera/{name}"] = pixels[:, 0, :: tiny.TOLD, :: tiny.TOLD].numpy()
    return found


def taught(predictor: nn.Module) -> Answers:
    given = tiny.frames(), tiny.actions()[None, : tiny.FRAMES], tiny.poses()[None, : tiny.FRAMES]
    return {"taught": predictor(given[0].flatten(1, 2), *given[1:]).unflatten(1, given[0].shape[1:3]).numpy()}


def imagined(code: types.SimpleNamespace, predictor: nn.Module, model: Any) -> Answers:
    frames, poses = rolled(code, predictor, seen(model)[0])
    return {"imagined": frames.numpy(), "moved": poses.numpy()}


def rolled(code: types.SimpleNamespace, predictor: nn.Module, start: Tensor) -> tuple[Tensor, Tensor]:
    """start `[1, n, d]`, normed -> a frame and a pose after each action, `[t, n, d]` and `[t, 7]`."""
    reps, actions = start[:, None], tiny.actions()[None]
    poses = tiny.poses()[None, :1]
    for step in range(tiny.HORIZON):
        taken = actions[:, : step + 1]
        following = predictor(reps.flatten(1, 2), taken, poses)[:, -tiny.CONFIG.patches :]
        following = nn.functional.layer_norm(following, following.shape[-1:])
        reps = torch.cat([reps, following[:, None]], 1)
        poses = torch.cat([poses, code.mpc.compute_new_pose(poses[:, -1:], taken[:, -1:])], 1)
    return reps[0, 1:], poses[0, 1:]


def planned(code: types.SimpleNamespace, model: Any) -> Answers:
    """The plan after each count of rounds."""
    rep, goal = (one[:, None] for one in seen(model))
    model.mpc_args = {
        "rollout": tiny.STEPS,
        "samples": tiny.SAMPLES,
        "topk": tiny.TOP,
        "maxnorm": tiny.MAX_NORM,
        "momentum_mean": tiny.MOMENTUM_MEAN,
        "momentum_std": tiny.MOMENTUM_STD,
    }
    plans: list[Tensor] = []
    for rounds in range(1, tiny.ROUNDS + 1):
        drawn = iter(tiny.noise().flatten(0, 1))
        code.mpc.torch = Torch(randn=lambda *_shape, drawn=drawn, **_on: next(drawn))
        model.mpc_args["cem_steps"] = rounds
        plans.append(model.infer_next_action(rep[0][None], tiny.poses()[None, :1], goal[0][None]))
    return {"planned": torch.stack(plans).numpy()}


class Torch(types.ModuleType):
    """`torch` for one module, with some names of our own."""

    def __init__(self, **own: Any) -> None:
        super().__init__("torch")
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def main(code: Path) -> None:
    torch.set_num_threads(1)
    theirs = published(code)
    encoder, predictor = build(theirs)
    model = world(theirs, encoder, predictor)
    with torch.no_grad():
        found = {
            **encoded(encoder, model),
            **shown(theirs, encoder),
            **taught(predictor),
            **imagined(theirs, predictor, model),
            **planned(theirs, model),
        }
    for name, numbers in found.items():
        print(name, numbers.shape, numbers.dtype, float(np.abs(numbers).mean()))
    np.savez_compressed(Path(__file__).with_name("vjepa2_tiny.npz"), **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
