"""Writes what `transformers`, which is no requirement of ours, gives for the pictures and videos of `seeing.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_seeing.py

FOLDER holds `torchvision` too, which resizes the pictures. `seeing.npz` then holds for every picture its embeddings
float32 `[n, d]`, its features `[3, n, d]`, its grid in patches, and every 7th patch in levels uint8 `[n, 3 * 256]`; for
videos every 7th row of all of them.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni import seeing as tiny
from tests.golden.qwen3_omni.drawing import weights
from walkgraph.models.qwen3_omni.parts import PREFIXES, VISION
from walkgraph.models.qwen3_omni.seeing.config import VISION_TINY
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder

_NORMAL = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": 16}
"""Values of the published `preprocessor_config.json`."""


class Patches(NamedTuple):
    rows: Tensor
    """float32 `[R, 3 * 2 * 256]` in [-1, 1]"""
    grid: Tensor
    """int64 `[1, 3]`: in patches"""


class Answer(NamedTuple):
    embeddings: Tensor
    deepstack: Tensor


def published() -> Any:
    """The published code's encoder, with our numbers."""
    models = importlib.import_module("transformers.models.qwen3_omni_moe")
    config = models.configuration_qwen3_omni_moe.Qwen3OmniMoeVisionEncoderConfig(
        **tiny.PUBLISHED, attn_implementation="eager"
    )
    model = models.modeling_qwen3_omni_moe.Qwen3OmniMoeVisionEncoder(config).eval()
    state = weights(lambda: VisionEncoder(VISION_TINY), PREFIXES[VISION])
    model.load_state_dict({name.removeprefix(PREFIXES[VISION]): tensor for name, tensor in state.items()})
    return model


class Processors:
    """The published processors of pictures and of videos."""

    def __init__(self) -> None:
        import_torchvision()
        models = importlib.import_module("transformers.models.qwen2_vl")
        pictures, videos = models.image_processing_qwen2_vl, models.video_processing_qwen2_vl
        self._pictures = pictures.Qwen2VLImageProcessor(**_NORMAL, min_pixels=3136, max_pixels=12_845_056)
        self._videos = videos.Qwen2VLVideoProcessor(**_NORMAL)
        self._size = {"shortest_edge": 128 * 32 * 32, "longest_edge": 768 * 32 * 32}

    def picture(self, levels: np.ndarray) -> Patches:
        made = self._pictures(images=[torch.from_numpy(levels).permute(2, 0, 1)], return_tensors="pt")
        return Patches(made["pixel_values"], made["image_grid_thw"])

    def video(self, frames: np.ndarray) -> Patches:
        given = {"size": self._size, "do_sample_frames": False, "return_tensors": "pt"}
        made = self._videos(videos=[torch.from_numpy(frames).permute(0, 3, 1, 2)], **given)
        return Patches(made["pixel_values_videos"], made["video_grid_thw"])


def import_torchvision() -> None:
    """Before anything of `transformers`, which imports it too: it describes kernels that its build for another device
    lacks, and only its resize is used here."""
    fake, torch.library.register_fake = torch.library.register_fake, _undescribed
    importlib.import_module("torchvision")
    torch.library.register_fake = fake


def _undescribed(*_given: Any, **_named: Any) -> Callable[[Any], Any]:
    return lambda work: work


def seen(model: Any, patches: Patches) -> Answer:
    with torch.no_grad():
        made = model(patches.rows, grid_thw=patches.grid)
    return Answer(made.pooler_output, torch.stack(list(made.deepstack_features)))


def levels_of(patches: Patches) -> np.ndarray:
    """uint8 `[R, 3 * 2 * 256]`"""
    return ((patches.rows + 1) * 127.5).round().to(torch.uint8).numpy()


def main() -> None:
    processors, model, kept = Processors(), published(), dict[str, np.ndarray]()
    for name, (height, width) in tiny.PICTURES.items():
        patches = processors.picture(tiny.levels(height, width))
        answer = seen(model, patches)
        first = levels_of(patches).reshape(-1, 3, 2, 256)[:, :, 0].reshape(-1, 3 * 256)
        kept |= _named(name, patches, first, answer, 1)
    for name in tiny.VIDEOS:
        patches = processors.video(tiny.frames(name))
        kept |= _named(f"{name} video", patches, levels_of(patches), seen(model, patches), tiny.KEPT)
    np.savez_compressed(tiny.ANSWERS, allow_pickle=False, **kept)


def _named(name: str, patches: Patches, levels: np.ndarray, answer: Answer, every: int) -> dict[str, np.ndarray]:
    return {
        f"{name}: grid": patches.grid[0].numpy(),
        f"{name}: patches": levels[:: tiny.KEPT * every],
        f"{name}: embeddings": answer.embeddings[::every].numpy(),
        f"{name}: deepstack": answer.deepstack[:, ::every].numpy(),
    }


if __name__ == "__main__":
    main()
