"""Writes `bagel_tiny.npz` and `bagel_wide.npz`: what the published BAGEL code computes from the weights of
`bagel_tiny.py`.

    PYTHONPATH=backend python tests/golden/make_bagel.py CODE

`CODE` is a checkout of github.com/ByteDance-Seed/Bagel (056b5fd was used). Nothing of it is in this repository, and it
wants packages that this project doesn't have: python 3.11, torch 2.13, transformers 4.49.0 with tokenizers 0.21 and
huggingface_hub 0.29, torchvision 0.28, einops, regex. Its attention kernel is replaced by a plain one and bfloat16 by
float32, so that it runs on a CPU; noise is given to it, and a picture's latents are the mean of their posterior.
"""

import importlib.machinery
import io
import sys
import tempfile
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.golden import bagel_tiny as tiny

Answers = dict[str, np.ndarray]
TOKENS = 8
"""Length of a context whose keys and values are kept."""


def attend(q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, causal: bool = False, **_: Any) -> Any:
    """Packed attention; a causal mask ends at the last key."""
    heads = []
    for a, b, c, d in zip(cu_seqlens_q[:-1], cu_seqlens_q[1:], cu_seqlens_k[:-1], cu_seqlens_k[1:], strict=True):
        mine = [x.transpose(0, 1)[None] for x in (q[a:b], k[c:d], v[c:d])]
        mask = torch.ones(int(b - a), int(d - c), dtype=torch.bool).tril(int((d - c) - (b - a))) if causal else None
        heads.append(F.scaled_dot_product_attention(*mine, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1))
    return torch.cat(heads)


class Torch(types.ModuleType):
    """`torch` for one module, with some names of our own."""

    def __init__(self, **own: Any) -> None:
        super().__init__("torch")
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def published(code: Path) -> types.SimpleNamespace:
    """The modules of the published code, with what it needs of packages that a CPU has not."""
    for name, own in {"flash_attn": {"flash_attn_varlen_func": attend}, "cv2": {}}.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__dict__.update(own)
        sys.modules[name] = module
    # torchvision describes kernels that its build for another device lacks; only its resize is used here.
    fake, torch.library.register_fake = torch.library.register_fake, lambda *_a, **_k: lambda f: f
    import torchvision.transforms  # noqa: F401

    torch.library.register_fake = fake
    sys.path.insert(0, str(code))
    import inferencer
    from data import data_utils, transforms
    from modeling import autoencoder, bagel
    from modeling.bagel import bagel as flow
    from modeling.bagel import qwen2_navit, siglip_navit
    from modeling.qwen2 import Qwen2Tokenizer

    qwen2_navit.torch = siglip_navit.torch = Torch(bfloat16=torch.float32)
    return types.SimpleNamespace(
        inferencer=inferencer,
        data=data_utils,
        transforms=transforms,
        autoencoder=autoencoder,
        bagel=bagel,
        flow=flow,
        Tokenizer=Qwen2Tokenizer,
    )


def redraw(module: torch.nn.Module) -> dict[str, list[int]]:
    """Every tensor but the tables of positions, by its name; gives the shapes."""
    state = module.state_dict()
    names = [name for name in state if name not in tiny.POSITIONS]
    module.load_state_dict({**state, **{name: tiny.drawn(name, state[name].shape) for name in names}})
    return {name: list(tensor.shape) for name, tensor in state.items()}


class Numbers:
    """The tokenizer, whose decoded text keeps every token: tokens of random weights are seldom whole characters."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def decode(self, ids: Sequence[int]) -> str:
        names = {self.tokenizer.convert_tokens_to_ids(name): name for name in ("<|im_start|>", "<|im_end|>")}
        return "".join(names.get(int(i), chr(0xE000 + int(i))) for i in ids)

    def encode(self, text: str) -> list[int]:
        if text and all(c >= "\ue000" and c < "\uf800" for c in text):
            return [ord(c) - 0xE000 for c in text]
        return self.tokenizer.encode(text)


def build(code: types.SimpleNamespace, folder: Path) -> types.SimpleNamespace:
    """The model, as the published application builds it."""
    llm = code.bagel.Qwen2Config.from_json_file(str(folder / "llm_config.json"))
    llm.qk_norm, llm.tie_word_embeddings, llm.layer_module = True, False, "Qwen2MoTDecoderLayer"
    vit = code.bagel.SiglipVisionConfig.from_json_file(str(folder / "vit_config.json"))
    vit.rope = False
    vit.num_hidden_layers -= 1
    vae_config = code.autoencoder.AutoEncoderParams(
        resolution=256, in_channels=3, out_ch=3, scale_factor=0.3611, shift_factor=0.1159, **tiny.VAE
    )
    vae = code.autoencoder.AutoEncoder(vae_config)
    vae.reg.sample = False
    config = code.bagel.BagelConfig(
        llm_config=llm, vit_config=vit, vae_config=vae_config, latent_patch_size=2, max_latent_size=64
    )
    model = code.bagel.Bagel(code.bagel.Qwen2ForCausalLM(llm), code.bagel.SiglipVisionModel(vit), config)
    model.vit_model.vision_model.embeddings.convert_conv2d_to_linear(vit)
    shapes = {"ema": redraw(model), "ae": redraw(vae)}
    tokenizer = code.Tokenizer.from_pretrained(str(folder))
    tokenizer, ids, added = code.data.add_special_tokens(tokenizer)
    assert not added
    return types.SimpleNamespace(
        model=model.eval(), vae=vae.eval(), shapes=shapes, tokenizer=Numbers(tokenizer), ids=ids, plain=tokenizer
    )


def rules(code: types.SimpleNamespace, most: int, least: int, stride: int) -> Any:
    return code.transforms.ImageTransform(most, least, stride)


def some(tokens: int) -> np.ndarray:
    return np.linspace(0, tokens - 1, TOKENS).astype(int)


def kept(context: dict[str, Any]) -> np.ndarray:
    """float32 `[2 layers, k and v, TOKENS, G, D]`: of the first and the last layer."""
    cache = context["past_key_values"]
    last = cache.num_layers - 1
    if not context["kv_lens"][0]:
        return np.zeros((2, 2, 0))
    at = some(context["kv_lens"][0])
    rows = [[values[layer][at] for values in (cache.key_cache, cache.value_cache)] for layer in (0, last)]
    return np.stack([np.stack([row.numpy() for row in pair]) for pair in rows])


def recorder(code: types.SimpleNamespace, built: types.SimpleNamespace, name: str, task: str, answers: Answers) -> Any:
    """The published inferencer, which tells what its contexts hold and what it draws."""

    def contexts(**named: dict[str, Any]) -> None:
        for key, context in named.items():
            answers[f"{name}/{key}/counters"] = np.array([context["kv_lens"][0], context["ropes"][0]])
            answers[f"{name}/{key}/rows"] = kept(context)

    class Recorder(code.inferencer.InterleaveInferencer):
        def gen_image(self, shape: Any, context: Any, **named: Any) -> Any:
            contexts(main=context, cfg_text=named["cfg_text_precontext"], cfg_img=named["cfg_img_precontext"])
            return super().gen_image(shape, context, **named)

        def gen_text(self, context: Any, **named: Any) -> Any:
            if task == "image_to_text":
                contexts(main=context)
                if name == "tell":
                    answers["forced"] = forced(built, context)
            return super().gen_text(context, **named)

        def decode_image(self, latent: Any, shape: Any) -> Any:
            answers[f"{name}/latents"] = latent[::5].numpy()
            answers[f"{name}/size"] = np.array(shape)
            return super().decode_image(latent, shape)

    transforms = rules(code, *tiny.VAE_RULES), rules(code, *tiny.VIT_RULES)
    return Recorder(built.model, built.vae, built.tokenizer, *transforms, built.ids)


def record(
    code: types.SimpleNamespace, built: types.SimpleNamespace, name: str, asked: tiny.Asked, answers: Answers
) -> None:
    """One run, by the published inferencer."""
    params = dict(asked.params)
    runner = recorder(code, built, name, asked.task, answers)
    parts = [Image.open(io.BytesIO(tiny.pictures()[what])) if kind == "image" else what for kind, what in asked.parts]

    def randn(tokens: int, width: int) -> Any:
        if "height" in params:
            height, columns = params["height"], params["width"]
        else:
            last = code.data.pil_img2rgb(next(part for part in reversed(parts) if not isinstance(part, str)))
            columns, height = runner.vae_transform.resize_transform(last).size
        return tiny.noise(height // 16, columns // 16, params["seed"]).reshape(tokens, width)

    code.flow.torch = Torch(randn=randn)
    system = params.get("system_prompt", "")
    code.inferencer.VLM_THINK_SYSTEM_PROMPT = code.inferencer.GEN_THINK_SYSTEM_PROMPT = system
    # Its length counts the token that an answer begins with; the last one that it computes is thrown away.
    length = params.get("max_tokens", 0) + 1
    options: dict[str, Any] = {"understanding_output": True} if asked.task == "image_to_text" else drawing(params)
    out = runner.interleave_inference(parts, think=params.get("think", False), max_think_token_n=length, **options)
    for one in out:
        if isinstance(one, str):
            answers[f"{name}/written"] = np.array(built.tokenizer.encode(one))
        else:
            answers[f"{name}/picture"] = np.asarray(one)[::5, ::5]


def drawing(params: dict[str, Any]) -> dict[str, Any]:
    """The inferencer's arguments for the parameters of our tasks; what a run leaves out is our default."""
    edits = "height" not in params
    return {
        "cfg_text_scale": params.get("cfg_text_scale", 4.0),
        "cfg_img_scale": params.get("cfg_img_scale", 2.0 if edits else 1.0),
        "cfg_interval": [
            params.get("cfg_interval_low", 0.0 if edits else 0.4),
            params.get("cfg_interval_high", 1.0),
        ],
        "cfg_renorm_min": params.get("renorm_min", 0.0),
        "cfg_renorm_type": params.get("renorm", "text_channel" if edits else "global"),
        "num_timesteps": params["steps"],
        "timestep_shift": params["shift"],
        **({} if edits else {"image_shapes": (params["height"], params["width"])}),
    }


def forced(built: types.SimpleNamespace, context: dict[str, Any]) -> np.ndarray:
    """float32 `[1 + n, V]`: logits after the token that an answer begins with, and after each forced one."""
    model, tokens = built.model, torch.tensor([built.ids["bos_token_id"], *tiny.FORCED])
    there, position = context["kv_lens"][0], context["ropes"][0]
    states = model.language_model.forward_inference(
        packed_query_sequence=model.language_model.model.embed_tokens(tokens),
        query_lens=torch.tensor([len(tokens)]),
        packed_query_position_ids=position + torch.arange(len(tokens)),
        packed_query_indexes=there + torch.arange(len(tokens)),
        past_key_values=context["past_key_values"],
        key_values_lens=torch.tensor([there]),
        packed_key_value_indexes=torch.arange(there),
        update_past_key_values=False,
        is_causal=True,
        mode="und",
    )
    return model.language_model.lm_head(states.packed_query_sequence).numpy()


def encoders(code: types.SimpleNamespace, built: types.SimpleNamespace, answers: Answers) -> None:
    """Sizes and pixels of pictures, what the encoders give for them, and what the tables of positions hold."""
    sizes = [(w, h) for w in (64, 300, 511, 777, 1024, 1366, 4000) for h in (48, 224, 513, 980, 1500, 3024)]
    vae, vit = rules(code, 1024, 512, 16), rules(code, 980, 224, 14)
    targets = []
    for size in sizes:
        first = vae.resize_transform(Image.new("RGB", size))
        targets.append([*size, *first.size, *vae.resize_transform(first).size, *vit.resize_transform(first).size])
    answers["sizes"] = np.array(targets)
    for name, data in tiny.pictures().items():
        rgb = rules(code, *tiny.VAE_RULES).resize_transform(code.data.pil_img2rgb(Image.open(io.BytesIO(data))))
        pixels = {"vae": rules(code, *tiny.VAE_RULES)(rgb), "vit": rules(code, *tiny.VIT_RULES)(rgb)}
        for kind, value in pixels.items():
            answers[f"pixels/{name}/{kind}"] = (value * 127.5 + 127.5).round().byte()[:, ::7, ::7].numpy()
            answers[f"pixels/{name}/{kind}/shape"] = np.array(value.shape)
        context = built.model.prepare_vit_images([0], [0], [rgb], rules(code, *tiny.VIT_RULES), built.ids)[0]
        hidden = built.model.vit_model(
            packed_pixel_values=context["packed_vit_tokens"],
            packed_flattened_position_ids=context["packed_vit_position_ids"],
            cu_seqlens=torch.tensor([0, len(context["packed_vit_tokens"])], dtype=torch.int32),
            max_seqlen=len(context["packed_vit_tokens"]),
        )
        seen = built.model.connector(hidden) + built.model.vit_pos_embed(context["packed_vit_position_ids"])
        answers[f"seen/{name}"] = seen[::9].numpy()
        answers[f"latents/{name}"] = built.vae.encode(pixels["vae"][None])[0, :, ::3, ::3].numpy()
    for name in tiny.POSITIONS:
        answers[f"table/{name}"] = built.model.state_dict()[name][::97].numpy()


@torch.no_grad()
def make(modules: types.SimpleNamespace, model: tiny.Model) -> None:
    torch.manual_seed(0)
    answers: Answers = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny.write_config(folder, model)
        tiny.write_tokenizer(folder)
        built = build(modules, folder)
    for stem, shapes in built.shapes.items():
        answers[f"shapes/{stem}"] = np.array([f"{key} {' '.join(map(str, shape))}" for key, shape in shapes.items()])
    if model == tiny.TINY:
        for index, text in enumerate(tiny.TEXTS):
            answers[f"ids/{index}"] = np.array(built.plain.encode(text))
        answers["special"] = np.array([built.ids[k] for k in ("bos_token_id", "eos_token_id")])
        answers["edges"] = np.array([built.ids[k] for k in ("start_of_image", "end_of_image")])
        encoders(modules, built, answers)
    for name in model.asked:
        record(modules, built, name, tiny.ASKED[name], answers)
    np.savez_compressed(model.file, allow_pickle=False, **answers)


def main(code: Path) -> None:
    modules = published(code)
    for model in tiny.MODELS.values():
        make(modules, model)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
