"""Writes what `transformers`, which is no requirement of ours, answers in the talks of `whole.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_whole.py

`whole.npz` then holds for every talk the tokens of the answer, the codes of its speech and every fifth sample, all
chosen greedily; and the least distance between the two likeliest tokens and codes, for judging what rounding may
change.
"""

import importlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni import make_hearing, make_seeing, whole
from tests.golden.qwen3_omni.make_speaking import drawn
from tests.unit.engine.plans import call
from walkgraph.models.qwen3_omni.parts import CODE2WAV, part_of
from walkgraph.models.qwen3_omni.positions import film_order
from walkgraph.models.qwen3_omni.thinker.config import TINY
from walkgraph.models.video.operators import AudioIn, FramesIn, FramesOut

_MARKS = TINY.marks
_MADE = {
    whole.VIDEO: (8, (96, 160), 4.0, 32000),
    whole.BRIEF: (6, (96, 160), 30000 / 1001, 4000),
    whole.WIDE: (4, (96, 1600), 8.0, 12800),
}
"""Frames of a video, their height and width, their rate, and the samples of its sound."""


def published() -> Any:
    """The published code's model, with our numbers."""
    models = importlib.import_module("transformers.models.qwen3_omni_moe")
    config = models.configuration_qwen3_omni_moe.Qwen3OmniMoeConfig(**whole.CONFIG, attn_implementation="eager")
    model = models.modeling_qwen3_omni_moe.Qwen3OmniMoeForConditionalGeneration(config).eval()
    # Without this the published talker fails on a prompt with sound and pictures.
    model.talker.config.audio_config = model.thinker.config.audio_config
    spoken = {name: one for name, one in whole.tensors().items() if part_of(name) == CODE2WAV}
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: drawn(name, shape) for name, shape in shapes.items() if name not in spoken} | spoken)
    return model


class Prompt:
    """A talk as the published code takes it."""

    def __init__(self, talk: Sequence[whole.Turn], processors: make_seeing.Processors, *, heard: bool = False) -> None:
        """`heard`: videos are heard too."""
        self._processors, self._heard = processors, heard
        self.ids: list[int] = []
        self.spectra: list[Tensor] = []
        self.pictures: list[make_seeing.Patches] = []
        self.videos: list[make_seeing.Patches] = []
        self.seconds: list[float] = []
        for turn in talk:
            self.ids += [_MARKS.im_start, vars(_MARKS)[turn.role], _MARKS.newline]
            for part in turn.parts:
                self._append(part)
            self.ids += [_MARKS.im_end, _MARKS.newline]
        if talk[-1].role == "user":
            self.ids += [_MARKS.im_start, _MARKS.assistant, _MARKS.newline]

    def _append(self, part: whole.Part) -> None:
        match part:
            case str():
                self.ids += part.encode()
            case int():
                tokens = self._sound(whole.samples(part).astype(np.float32) / 32768)
                self.ids += [_MARKS.audio_start, *[_MARKS.audio] * tokens, _MARKS.audio_end]
            case Path():
                self._video(part)
            case list():
                self.ids += part
            case _:
                patches = self._processors.picture(whole.seeing.levels(*part))
                self.pictures.append(patches)
                tokens = int(patches.grid.prod()) // 4
                self.ids += [_MARKS.vision_start, *[_MARKS.image] * tokens, _MARKS.vision_end]

    def _sound(self, wave: np.ndarray) -> int:
        """Returns the number of its tokens."""
        spectrum = make_hearing.spectrum(wave)
        self.spectra.append(spectrum)
        return whole.AUDIO_TINY.tokens(spectrum.shape[1])

    def _video(self, file: Path) -> None:
        frames, rate, wave = video(file)
        patches = self._processors.video(frames)
        self.videos.append(patches)
        self.seconds.append(2 / rate)
        count, rows, columns = (int(size) for size in patches.grid[0])
        grid = count, rows // 2, columns // 2
        cells = grid[0] * grid[1] * grid[2]
        if self._heard:
            order = film_order(grid, self.seconds[-1], self._sound(wave)) < cells
            between = [_MARKS.video if seen else _MARKS.audio for seen in order.tolist()]
            self.ids += [_MARKS.vision_start, _MARKS.audio_start, *between, _MARKS.audio_end, _MARKS.vision_end]
        else:
            self.ids += [_MARKS.vision_start, *[_MARKS.video] * cells, _MARKS.vision_end]

    def given(self) -> dict[str, Any]:
        ids = torch.tensor([self.ids])
        found: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self.spectra:
            longest = max(one.shape[1] for one in self.spectra)
            padded = [torch.nn.functional.pad(one, (0, longest - one.shape[1])) for one in self.spectra]
            lengths = torch.tensor([one.shape[1] for one in self.spectra])
            found["input_features"] = torch.stack(padded)
            found["feature_attention_mask"] = (torch.arange(longest) < lengths[:, None]).long()
        if self.pictures:
            found["pixel_values"] = torch.cat([one.rows for one in self.pictures])
            found["image_grid_thw"] = torch.cat([one.grid for one in self.pictures])
        if self.videos:
            found["pixel_values_videos"] = torch.cat([one.rows for one in self.videos])
            found["video_grid_thw"] = torch.cat([one.grid for one in self.videos])
            found["video_second_per_grid"] = torch.tensor(self.seconds)
            found |= {"use_audio_in_video": self._heard, "talker_use_audio_in_video": self._heard}
        return found


@cache
def video(file: Path) -> tuple[np.ndarray, float, np.ndarray]:
    """The frames of a stored video uint8 `[f, h, w, 3]`, their rate, and its sound float32 `[s]` at 16 kHz."""
    if not file.exists():
        count, (height, width), rate, samples = _MADE[file]
        frames = [torch.from_numpy(whole.seeing.levels(height, width, i)).permute(2, 0, 1) for i in range(count)]
        sound = torch.from_numpy(whole.samples(samples).astype(np.float32) / 32768)
        inputs = {"frames": [frame / 127.5 - 1 for frame in frames], "waveform": sound}
        params = {"format": "mp4", "rate": rate, "quality": 60, "sample_rate": 16000}
        (made,) = FramesOut.load(None).forward([call("video", inputs, **params)], None)
        file.write_bytes(made["video"])
    given = {"video": file.read_bytes()}
    sampled = {"every": 2, "most": 32, "spread": False, "start": 0.0, "max_side": 4096}
    (seen,) = FramesIn.load(None).forward([call("frames", given, **sampled)], None)
    (heard,) = AudioIn.load(None).forward([call("track", given, sample_rate=16000)], None)
    levels = [((frame + 1) * 127.5).round().to(torch.uint8).permute(1, 2, 0) for frame in seen["frames"]]
    return torch.stack(levels).numpy(), float(seen["rate"]), heard["waveform"].numpy()


def answered(model: Any, prompt: Prompt) -> dict[str, np.ndarray]:
    heads: list[Tensor] = []
    watched = [model.thinker.lm_head, model.talker.codec_head, *model.talker.code_predictor.lm_head]
    hooks = [one.register_forward_hook(lambda _, given, made: heads.append(made[0, -1])) for one in watched]
    codes: list[Tensor] = []
    decode = model.code2wav.chunked_decode

    def chunked(given: Tensor, **named: Any) -> Tensor:
        codes.append(given)
        return decode(given, **named)

    model.code2wav.chunked_decode = chunked
    ids, waveform = model.generate(
        **prompt.given(),
        speaker="ethan",
        thinker_max_new_tokens=whole.TOKENS,
        talker_max_new_tokens=whole.FRAMES + 1,
        talker_do_sample=False,
    )
    model.code2wav.chunked_decode = decode
    for hook in hooks:
        hook.remove()
    close = min(float(top[0] - top[1]) for top in (one.topk(2).values for one in heads))
    return {
        "ids": ids[0, len(prompt.ids) :].numpy(),
        "codes": codes[0][0].T.numpy(),
        "waveform": waveform.flatten()[:: whole.KEPT].numpy(),
        "samples": np.array(waveform.numel()),
        "close": np.array(close),
    }


@torch.no_grad()
def main() -> None:
    processors = make_seeing.Processors()
    model, found = published(), dict[str, Any]()
    for name, (heard, talk) in {**{name: (False, talk) for name, talk in whole.TALKS.items()}, **whole.FILMED}.items():
        answer = answered(model, Prompt(talk, processors, heard=heard))
        print(name, answer["ids"], answer["codes"].shape, answer["samples"], answer["close"])
        found |= {f"{name}: {key}": value for key, value in answer.items()}
    for name, (heard, question) in whole.WATCHED.items():
        talk = [whole.Turn("system", [whole.PROMPT]), whole.Turn("user", [whole.VIDEO, question])]
        answer = answered(model, Prompt(talk, processors, heard=heard))
        print(name, answer["ids"], answer["codes"].shape, answer["samples"], answer["close"])
        found |= {f"{name}: {key}": value for key, value in answer.items()}
    np.savez_compressed(whole.ANSWERS, **found)


if __name__ == "__main__":
    main()
