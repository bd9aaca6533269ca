"""Writes what `transformers`, which is no requirement of ours, speaks for the prompts of `speaking.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_speaking.py

`speaking.npz` then holds for every prompt the answer's words, what the talker reads of the thinker, and the codes of
every frame with the logits from which they were chosen.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.qwen3_omni import speaking as tiny
from tests.golden.qwen3_omni.drawing import weight

_EXPERTS = ".mlp.experts."


def published() -> Any:
    """The published code's model, with our numbers."""
    from transformers.models.qwen3_omni_moe import configuration_qwen3_omni_moe as configuration
    from transformers.models.qwen3_omni_moe import modeling_qwen3_omni_moe as modeling

    config = configuration.Qwen3OmniMoeConfig(**tiny.CONFIG, attn_implementation="eager")
    model = modeling.Qwen3OmniMoeForConditionalGeneration(config).eval()
    # Without this the published talker fails on a prompt with sound and pictures.
    model.talker.config.audio_config = model.thinker.config.audio_config
    state = {name: drawn(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)
    return model


def drawn(name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor of the published code; its experts' matrices are joined, ours and the published files' are not."""
    if _EXPERTS not in name:
        return weight(name, shape)
    stem, joined = name.rsplit(".", 1)
    experts, out, into = shape
    parts = ("gate_proj", "up_proj") if joined == "gate_up_proj" else ("down_proj",)
    rows = out // len(parts)
    each = [
        torch.cat([weight(f"{stem}.{expert}.{part}.weight", (rows, into)) for part in parts])
        for expert in range(experts)
    ]
    return torch.stack(each)


class Watch:
    """The outputs of a model's parts, call by call."""

    def __init__(self, model: Any) -> None:
        self.first: list[Tensor] = []
        self.further: list[Tensor] = []
        self.positions: list[Tensor] = []
        model.talker.codec_head.register_forward_hook(lambda _, given, made: self.first.append(made[0, -1]))
        for head in model.talker.code_predictor.lm_head:
            head.register_forward_hook(lambda _, given, made: self.further.append(made[0, -1]))
        rope = model.talker.model.rotary_emb
        rope.register_forward_pre_hook(lambda _, given: self.positions.append(given[1]))
        self.thought: Any = None
        self.codes = torch.empty(0)
        self._think, model.thinker.generate = model.thinker.generate, self._thinking
        model.code2wav.chunked_decode = self._spoken

    def _thinking(self, *given: Any, **named: Any) -> Any:
        self.thought = self._think(*given, **named)
        return self.thought

    def _spoken(self, codes: Tensor, **named: Any) -> Tensor:
        self.codes = codes[0].t()
        return torch.zeros(1)


def media_of(prompt: tiny.Prompt) -> dict[str, Tensor]:
    given: dict[str, Tensor] = {}
    if prompt.sounds:
        given["input_features"] = tiny.spectra(prompt.sounds)
        given["feature_attention_mask"] = torch.ones(prompt.sounds, tiny.SOUND_FRAMES, dtype=torch.int64)
    if prompt.pictures:
        given["pixel_values"] = tiny.images(prompt.pictures)
        given["image_grid_thw"] = torch.tensor([tiny.GRID] * prompt.pictures)
    return given


def chances(logits: Tensor, codes: Tensor, steps: list[Any]) -> np.ndarray:
    """How likely each code is to be drawn after `codes`."""
    for step in steps:
        logits = step(codes[None], logits[None])[0]
    return logits.softmax(-1).numpy()


def asked(prompt: tiny.Prompt) -> dict[str, np.ndarray]:
    from transformers.generation import logits_process as process

    model = published()
    watch, ids = Watch(model), torch.tensor([prompt.ids])
    with torch.no_grad():
        model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            speaker=prompt.speaker,
            # The last token that is generated is never spoken.
            thinker_max_new_tokens=tiny.WORDS + 1,
            thinker_eos_token_id=None,
            talker_max_new_tokens=tiny.FRAMES + 1,
            talker_do_sample=False,
            **media_of(prompt),
        )
    words = watch.thought.sequences[0, len(prompt.ids) :][: tiny.WORDS]
    deep = watch.thought.hidden_states[0][model.config.talker_config.accept_hidden_layer][0]
    marks = model.config.thinker_config
    media = torch.isin(ids[0], torch.tensor([marks.audio_token_id, marks.image_token_id]))
    first = torch.stack(watch.first[: tiny.FRAMES])
    further = torch.stack(watch.further).view(tiny.FRAMES, -1, watch.further[0].shape[-1])
    at, codes, size = tiny.DRAWN_AT, watch.codes, first.shape[1]
    barred = [code for code in range(size - 1024, size) if code != model.config.talker_config.codec_eos_token_id]
    steps = [process.RepetitionPenaltyLogitsProcessor(1.05), process.SuppressTokensLogitsProcessor(barred, "cpu")]
    steps += [process.TemperatureLogitsWarper(0.9), process.TopKLogitsWarper(50)]
    further_steps = [process.TopKLogitsWarper(50), process.TopPLogitsWarper(0.8)]
    return {
        "first_chances": chances(first[at], codes[:at, 0], steps),
        "second_chances": chances(further[at, 0], codes[:0, 0], further_steps),
        "words": words.numpy(),
        "media": deep[media].numpy(),
        "positions": watch.positions[0][:, 0, : len(prompt.heard)].t().float().numpy(),
        "codes": watch.codes.numpy(),
        "first": first.numpy(),
        "further": further.numpy(),
    }


def main() -> None:
    kept: dict[str, np.ndarray] = {}
    for name, prompt in tiny.PROMPTS.items():
        kept |= {f"{name}: {key}": value for key, value in asked(prompt).items()}
    np.savez_compressed(tiny.ANSWERS, **kept)


if __name__ == "__main__":
    main()
