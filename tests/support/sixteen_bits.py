"""One layer of each kind of Qwen3-Omni, in bfloat16 against float32 on the same weights: how far its rows are off.

The weights are random numbers of bfloat16, as published ones are, and so are the rows that go in; so only the layer's
own arithmetic differs. The forms are those that serve: packed, over pages, with the kernels of the device.

Shape letters: R rows, W width.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from walkgraph.abi.calls import StateKey
from walkgraph.abi.states import CacheShape, Segment
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import decoder_layer
from walkgraph.architectures.language.rows import RowLayers
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.engine.kv.allocator import pages_for
from walkgraph.engine.kv.attention_backends import AttentionBackends
from walkgraph.engine.kv.pool import KVPools, Pool
from walkgraph.engine.kv.states import StateTable
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.rope import NeoxRope
from walkgraph.layers.sound.causal_conv import packed
from walkgraph.models.qwen3_omni.hearing.config import AUDIO_PRESETS
from walkgraph.models.qwen3_omni.hearing.model import AudioEncoder
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.seeing.config import VISION_PRESETS
from walkgraph.models.qwen3_omni.seeing.model import VisionEncoder
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor
from walkgraph.models.qwen3_omni.vocoder.config import VocoderConfig
from walkgraph.models.qwen3_omni.vocoder.weights import random_vocoder

M = TypeVar("M", bound=nn.Module)
KINDS = ("thinker", "talker", "predictor", "audio", "vision", "vocoder")
MIXED = frozenset({"thinker", "talker"})
"""Kinds with experts, where a row near the middle between two of them may choose the other one."""
_ROWS = (4, 200)
"""Rows of a short prompt, which a step's kernels serve, and of a long one."""


ROUNDED = 0.01
"""Half of a layer's rows are nearer than this: a number of a row goes through some ten roundings of at most 2 ** -9,
whose errors are independent, so they add up to about three of them, 0.006."""
SOUNDED = 0.03
"""The limit for sound: some twenty stages follow each other, and sines of large numbers make errors grow."""
FAR, FEW = 0.03, 0.25
"""No row is farther off, but for rows that choose another expert. Of 128 experts the eighth and the ninth are a
sixteenth of the logits' spread apart in the mean, ten times what rounding moves a logit: one row in ten changes one."""


def distances(kind: str, preset: str, device: torch.device) -> Tensor:
    """float32 `[R]` on the CPU: of each row the relative distance between both formats."""
    wanted, got = (_kinds(preset)[kind](device, dtype) for dtype in (torch.float32, torch.bfloat16))
    wanted, got = wanted.float().flatten(0, -2), got.float().flatten(0, -2)
    return ((got - wanted).norm(dim=-1) / wanted.norm(dim=-1)).cpu()


def near(kind: str, off: Tensor) -> bool:
    """True if a kind's `distances` are what rounding explains."""
    if kind == "vocoder":
        return bool(off.max() < SOUNDED)
    far = float((off > FAR).float().mean())
    return bool(off.median() < ROUNDED) and far <= (FEW if kind in MIXED else 0)


Layer = Callable[[torch.device, torch.dtype], Tensor]
"""-> `[..., R, W]`"""


def _kinds(preset: str) -> Mapping[str, Layer]:
    config = omni_config(preset)
    assert config.talker is not None
    assert config.code2wav is not None
    talker, vocoder = config.talker, replace(config.code2wav, layers=1)
    predictor, audio = replace(talker.predictor, layers=1), replace(AUDIO_PRESETS[preset], layers=1)
    vision = replace(VISION_PRESETS[preset], layers=1, deepstack=(0,))
    return {
        "thinker": lambda device, dtype: _decoded(config.thinker.llm, device, dtype),
        "talker": lambda device, dtype: _decoded(talker.stack, device, dtype),
        "predictor": lambda device, dtype: _predicted(predictor, talker.groups, device, dtype),
        "audio": lambda device, dtype: _heard(_made(lambda: AudioEncoder(audio), device, dtype), device),
        "vision": lambda device, dtype: _seen(_made(lambda: VisionEncoder(vision), device, dtype), device),
        "vocoder": lambda device, dtype: _spoken(vocoder, device, dtype),
    }


def _made(build: Callable[[], M], device: torch.device, dtype: torch.dtype) -> M:
    return drawn(build, 5, device=device, dtype=torch.bfloat16).to(dtype)


def _noise(*shape: int, device: torch.device) -> Tensor:
    """Numbers of bfloat16, in float32."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16().float().to(device)


def _decoded(config: LanguageConfig, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Prompts of a language model's layer, behind each other."""
    layer = _made(lambda: decoder_layer(config, config.layers - 1), device, dtype)
    assert isinstance(layer, DecoderLayer)
    layer.pack()
    rope = NeoxRope(config.head_dim, config.rope_theta, config.scaling, config.sections)
    rows = RowLayers(nn.ModuleList([layer]), "", rope)
    shape = CacheShape(layers=1, kv_heads=config.kv_heads, head_dim=config.head_dim, dtype=dtype)
    table = StateTable(KVPools({"kv": Pool(shape, sum(map(pages_for, _ROWS)), device)}), AttentionBackends())
    found: list[Tensor] = []
    with torch.inference_mode():
        for count in _ROWS:
            transaction, at = table.transaction(), torch.arange(count, device=device)
            attend = transaction.attend([Segment(StateKey(str(count), "kv"), at, "causal", advance=count)])
            x = _noise(count, config.width, device=device).to(dtype)
            found.append(rows.through(x, rows.turns(at), attend.placed()).clone())
            transaction.commit(attend)
            transaction.settle()
    return torch.cat(found)


def _predicted(config: LanguageConfig, groups: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The logits of a frame's further codes, each behind codes that are given."""
    model = _made(lambda: CodePredictor(config, groups), device, dtype).pack()
    logits, batch = list[Tensor](), 3

    def given(index: int, made: Tensor) -> Tensor:
        logits.append(made.clone())
        return torch.arange(batch, device=device) * 7 % config.vocab

    hidden, first = (_noise(batch, config.width, device=device).to(dtype) for _ in range(2))
    with torch.inference_mode():
        model.frames(hidden, first, torch.arange(batch, device=device), given)
    return torch.stack(logits)


def _heard(model: AudioEncoder, device: torch.device) -> Tensor:
    with torch.inference_mode():
        return torch.cat(model.pack()([_noise(count, model.config.mels, device=device) for count in (60, 330)]))


def _seen(model: VisionEncoder, device: torch.device) -> Tensor:
    clips = [_noise(1, 1, 3, *size, device=device).clamp(-1, 1) for size in ((96, 64), (224, 256))]
    with torch.inference_mode():
        return torch.cat([one.embeddings for one in model(clips)])


def _spoken(config: VocoderConfig, device: torch.device, dtype: torch.dtype) -> Tensor:
    """The sound of two streams, one row each: a layer of the transformer, and all convolutions behind it."""
    rounded = random_vocoder(config, 5, device=device, dtype=torch.bfloat16)
    model = random_vocoder(config, 5, device=device, dtype=dtype)
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in rounded.state_dict().items()})
    packed(model)
    codes = torch.arange(2 * 12 * config.groups, device=device).view(2, 12, -1) * 31 % config.codebook
    with torch.inference_mode():
        sound, _ = model.decode(codes, torch.zeros(2, dtype=torch.int64, device=device), model.fresh(2), first=True)
    return sound
