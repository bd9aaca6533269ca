"""Writes the answers that `transformers`, which is no requirement of ours, gives to the talks of `thinking`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_thinking.py

`thinking.npz` then holds of each talk: `positions` float32 `[m, 3]`, `delta`, `hidden` `[n, W]` of the rows of media
after the layers that the talker reads, `logits` `[1 + STEPS, V]` behind the prompt and each given token, and `ids`
`[STEPS]` generated greedily.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni import thinking as tiny
from tests.golden.qwen3_omni.speaking import CONFIG
from walkgraph.models.qwen3_omni.positions import film_order


def reference() -> Any:
    """The published code's thinker with the tiny weights."""
    from transformers import (  # pyright: ignore[reportMissingImports]
        Qwen3OmniMoeThinkerConfig,
        Qwen3OmniMoeThinkerForConditionalGeneration,
    )

    config = Qwen3OmniMoeThinkerConfig(**CONFIG["thinker_config"])
    config._attn_implementation = config.text_config._attn_implementation = "eager"
    model: Any = Qwen3OmniMoeThinkerForConditionalGeneration(config).eval()
    found = dict(tiny.weights())
    for layer in range(config.text_config.num_hidden_layers):
        at = f"model.layers.{layer}.mlp.experts"
        each = [{p: found.pop(f"{at}.{e}.{p}_proj.weight") for p in ("gate", "up", "down")} for e in range(8)]
        found[f"{at}.gate_up_proj"] = torch.stack([torch.cat([one["gate"], one["up"]]) for one in each])
        found[f"{at}.down_proj"] = torch.stack([one["down"] for one in each])
    lacking, odd = model.load_state_dict(found, strict=False)
    assert not odd
    assert all(name.startswith(("audio_tower.", "visual.")) for name in lacking), lacking
    return model


class Prompt:
    """A talk as the published code takes it: ids, and features that its encoders are replaced by."""

    def __init__(self, name: str) -> None:
        marks = tiny.config().marks
        self.ids: list[int] = []
        self.images: list[dict[str, Tensor]] = []
        self.videos: list[dict[str, Tensor]] = []
        self.sounds: list[Tensor] = []
        self.mels: list[int] = []
        self.film = False
        for index, one in enumerate(tiny.TALKS[name]):
            if isinstance(one, str):
                self.ids += tiny.ids_of(one)
                continue
            found = dict(tiny.rows(name, index, one))
            if one.mel:
                self.sounds.append(found["audio"])
                self.mels.append(one.mel)
            if one.grid is not None:
                (self.images if one.seconds is None else self.videos).append(found)
            seen = 0 if one.grid is None else len(found["image"])
            sounds = [marks.audio] * tiny.heard(one.mel)
            if one.grid is not None and one.mel:
                self.film = True
                order = film_order(one.grid, one.seconds or 1.0, len(sounds)).tolist()
                between = [marks.video if place < seen else marks.audio for place in order]
                self.ids += [marks.vision_start, marks.audio_start, *between, marks.audio_end, marks.vision_end]
            elif one.grid is not None:
                token = marks.image if one.seconds is None else marks.video
                self.ids += [marks.vision_start, *[token] * seen, marks.vision_end]
            else:
                self.ids += [marks.audio_start, *sounds, marks.audio_end]

    def given(self, ids: list[int]) -> dict[str, Any]:
        """Arguments of a forward over these ids. The features' own inputs are empty stands."""
        tokens = torch.tensor([ids])
        found: dict[str, Any] = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if self.sounds:
            mask = torch.zeros(len(self.mels), max(self.mels), dtype=torch.long)
            for row, mel in enumerate(self.mels):
                mask[row, :mel] = 1
            found |= {
                "input_features": torch.zeros(len(self.mels), 128, max(self.mels)),
                "feature_attention_mask": mask,
            }
        for kind, several in (("image", self.images), ("video", self.videos)):
            if several:
                grids = torch.stack([one["grid"] for one in several]) * torch.tensor([1, 2, 2])
                pixels = "pixel_values" if kind == "image" else "pixel_values_videos"
                found |= {f"{kind}_grid_thw": grids, pixels: torch.zeros(1)}
        if self.videos:
            found["video_second_per_grid"] = torch.stack([one["seconds"] for one in self.videos])
            found["use_audio_in_video"] = self.film
        return found

    def placed(self, model: Any) -> tuple[Tensor, Tensor]:
        """The positions of a prompt `[3, 1, n]`, and what a token's number and it add up to."""
        arguments = self.given(self.ids)
        places = {key: arguments.get(key) for key in ("image_grid_thw", "video_grid_thw", "attention_mask")}
        return model.get_rope_index(
            arguments["input_ids"],
            **places,
            use_audio_in_video=self.film,
            audio_seqlens=torch.tensor(self.mels) if self.mels else None,
            second_per_grids=arguments.get("video_second_per_grid"),
        )

    def stand_in(self, model: Any) -> None:
        """Let the drawn rows stand for what the encoders would give."""

        def seen(several: list[dict[str, Tensor]]) -> Any:
            if not several:
                return None
            deepstack = torch.cat([one["deepstack"] for one in several], 1)
            rows = [one["image"] for one in several]
            return lambda *_, **__: SimpleNamespace(pooler_output=rows, deepstack_features=list(deepstack))

        model.get_audio_features = lambda *_, **__: SimpleNamespace(last_hidden_state=torch.cat(self.sounds))
        model.get_image_features, model.get_video_features = seen(self.images), seen(self.videos)


def answers(model: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    prompt = Prompt(name)
    prompt.stand_in(model)
    marks, told = tiny.config().marks, tiny.config().told
    media = torch.isin(torch.tensor(prompt.ids), torch.tensor([marks.audio, marks.image, marks.video]))
    model.rope_deltas = None
    places, delta = prompt.placed(model)
    whole = prompt.given([*prompt.ids, *tiny.given()])
    found = model(**whole, output_hidden_states=True)
    yield "hidden", found.hidden_states[told][0, : len(prompt.ids)][media]
    yield "logits", found.logits[0, len(prompt.ids) - 1 :]
    model.rope_deltas = None
    arguments = prompt.given(prompt.ids)
    made = model.generate(**arguments, max_new_tokens=tiny.STEPS, min_new_tokens=tiny.STEPS, do_sample=False)
    yield "ids", made[0, len(prompt.ids) :]
    yield "positions", places[:, 0].T.float()
    yield "delta", delta.flatten().float()


@torch.no_grad()
def main() -> None:
    model = reference()
    found: dict[str, Any] = {
        f"{name}/{key}": value.numpy() for name in tiny.TALKS for key, value in answers(model, name)
    }
    np.savez(tiny.ANSWERS, **found)


if __name__ == "__main__":
    main()
