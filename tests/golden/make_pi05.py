"""Writes `pi05_tiny.npz`: what the published pi0.5 code computes from the weights of `pi05_tiny.py`.

    PYTHONPATH=backend python tests/golden/make_pi05.py CODE

`CODE` is a checkout of github.com/Physical-Intelligence/openpi (its `src` is read). Nothing of it is in this
repository, and it wants packages that this project doesn't have: python 3.11, torch 2.13, transformers 4.53.2 with
openpi's `transformers_replace` copied into it, tokenizers 0.21 and huggingface_hub 0.36. What it takes from jax is a
table of sizes, which is given to it here; all is computed in float32 on a CPU.
"""

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.golden import pi05_tiny as tiny

C = tiny.CONFIG


def published(code: Path) -> Any:
    """The published model with our sizes."""
    sizes = {"depth": C.layers, "num_heads": C.heads, "num_kv_heads": C.kv_heads, "head_dim": C.head_dim}
    widths = {
        "gemma_2b": types.SimpleNamespace(width=C.prefix.width, mlp_dim=C.prefix.hidden, **sizes),
        "gemma_300m": types.SimpleNamespace(width=C.expert.width, mlp_dim=C.expert.hidden, **sizes),
    }
    for name, own in {
        "openpi.models.gemma": {"get_config": widths.__getitem__},
        "openpi.models_pytorch.preprocessing_pytorch": {"preprocess_observation_pytorch": lambda seen, train: seen},
    }.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__dict__.update(own)
    sys.path.insert(0, str(code / "src"))
    for name in ("openpi", "openpi.models", "openpi.models_pytorch"):
        package = types.ModuleType(name)
        package.__path__ = [str(code / "src" / name.replace(".", "/"))]
        sys.modules[name] = package
    sys.modules["openpi.models"].gemma = sys.modules["openpi.models.gemma"]
    from openpi.models_pytorch import gemma_pytorch, pi0_pytorch

    whole, expert = gemma_pytorch.PaliGemmaForConditionalGeneration, gemma_pytorch.GemmaForCausalLM

    def small(config: Any) -> Any:
        vision = config.vision_config
        vision.hidden_size, vision.intermediate_size = C.vision.width, C.vision.hidden
        vision.num_hidden_layers, vision.num_attention_heads = C.vision.layers, C.vision.heads
        vision.patch_size, vision.image_size, vision.projection_dim = C.vision.patch, C.picture, C.prefix.width
        config.text_config.vocab_size, config._vocab_size, config.image_token_index = C.vocab, C.vocab, C.vocab - 1
        config.text_config.pad_token_id = 0
        config.projection_dim = config.hidden_size = C.prefix.width
        return whole(config)

    def small_expert(config: Any) -> Any:
        config.vocab_size, config.pad_token_id = C.vocab, 0
        return expert(config)

    gemma_pytorch.PaliGemmaForConditionalGeneration = small
    gemma_pytorch.GemmaForCausalLM = small_expert
    config = types.SimpleNamespace(
        pi05=True,
        paligemma_variant="gemma_2b",
        action_expert_variant="gemma_300m",
        dtype="float32",
        action_dim=C.action_width,
        action_horizon=tiny.HORIZON,
        pytorch_compile_mode=None,
    )
    return pi0_pytorch.PI0Pytorch(config).eval()


def observed(asked: tiny.Asked) -> tuple[Any, ...]:
    """As the published `_preprocess_observation` gives it."""
    rows = range(len(asked.lengths))
    images = [torch.stack([tiny.pixels(row, camera) for row in rows]) for camera in range(3)]
    masks = [torch.tensor([asked.present[row][camera] for row in rows]) for camera in range(3)]
    tokens = torch.zeros(len(rows), tiny.TEXT, dtype=torch.int64)
    for row in rows:
        tokens[row, : asked.lengths[row]] = tiny.ids(row, asked.lengths[row])
    there = torch.arange(tiny.TEXT) < torch.tensor(asked.lengths)[:, None]
    return images, masks, tokens, there, torch.zeros(len(rows), C.action_width)


def answered(model: Any, asked: tiny.Asked) -> dict[str, np.ndarray]:
    images, masks, tokens, there, state = observed(asked)
    noise = torch.stack([tiny.noise(row) for row in range(len(asked.lengths))])
    model._preprocess_observation = lambda observation, train: (images, masks, tokens, there, state)
    observation = types.SimpleNamespace(state=state)
    kept: dict[str, Tensor] = {}
    inner = model.denoise_step

    def watched(state: Tensor, valid: Tensor, past: Any, x: Tensor, time: Tensor) -> Tensor:
        if not kept:
            kept["valid"] = valid
            for layer in (0, C.layers - 1):
                kept[f"k{layer}"], kept[f"v{layer}"] = (part.transpose(1, 2) for part in past[layer])
            for at in tiny.TIMES:
                kept[f"velocity{at}"] = inner(state, valid, past, noise, torch.full_like(time, at))
        return inner(state, valid, past, x, time)

    model.denoise_step = watched
    kept["actions"] = model.sample_actions("cpu", observation, noise, num_steps=tiny.STEPS)
    model.denoise_step = inner
    return {name: value.contiguous().numpy() for name, value in kept.items()}


def joint(model: Any, asked: tiny.Asked) -> np.ndarray:
    """The velocity error of the published training pass: prefix and actions at once, every row at a time of its own."""
    images, masks, tokens, there, state = observed(asked)
    model._preprocess_observation = lambda observation, train: (images, masks, tokens, there, state)
    rows = range(len(asked.lengths))
    actions = torch.stack([tiny.noise(100 + row) for row in rows])
    noise = torch.stack([tiny.noise(row) for row in rows])
    time = torch.tensor(tiny.TIMES[: len(rows)])
    with torch.no_grad():
        return model(types.SimpleNamespace(state=state), actions, noise, time).numpy()


def built(code: Path) -> tuple[Any, list[str]]:
    """The published model with weights drawn by their names, and these with their shapes."""
    model = published(code)
    # As `save_model` writes it: of tensors that are one, one name.
    state = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("embed_tokens.weight")}
    model.load_state_dict({name: tiny.drawn(name, tensor.shape) for name, tensor in state.items()}, strict=False)
    return model, [" ".join([name, *map(str, tensor.shape)]) for name, tensor in state.items()]


def main() -> None:
    model, shapes = built(Path(sys.argv[1]))
    answers: dict[str, np.ndarray] = {"shapes": np.array(shapes)}
    for name, asked in tiny.ASKED.items():
        answers |= {f"{name}/{key}": value for key, value in answered(model, asked).items()}
        answers[f"{name}/loss"] = joint(model, asked)
    np.savez_compressed(tiny.FILE, **answers)
    print({name: value.shape for name, value in answers.items()}, tiny.FILE.stat().st_size)


if __name__ == "__main__":
    main()
