"""Sizes and ids of the talker and its code predictor."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import rope_base, rope_kind, rope_of, sizes_of
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig, published_experts
from walkgraph.errors import InvalidInput
from walkgraph.models.qwen3_omni.thinker.config import rotary_sizes

_GROUPS = 64
_SPEAKERS = 4096
RESERVED = 1024
"""Ids at the end of the talker's vocabulary that are no codes; of these only the end of the speech is sampled."""


@dataclass(frozen=True, kw_only=True)
class CodecTokens:
    """Ids of the talker's vocabulary beside the codes; the defaults are the published model's."""

    pad: int = 2148
    bos: int = 2149
    eos: int = 2150
    """Ends the speech."""
    nothink: int = 2155
    think_bos: int = 2156
    think_eos: int = 2157


@dataclass(frozen=True, kw_only=True)
class SpokenTokens:
    """Ids of the thinker's vocabulary that the talker knows; the defaults are the published model's."""

    im_start: int = 151644
    assistant: int = 77091
    newline: int = 198
    audio: int = 151675
    """Stands for a row of sound; `image` and `video` likewise."""
    image: int = 151655
    video: int = 151656
    pad: int = 151671
    """Follows the end of the answer."""
    bos: int = 151672
    eos: int = 151673
    """Ends the answer."""

    @property
    def media(self) -> tuple[int, int, int]:
        return self.audio, self.image, self.video

    @property
    def opening(self) -> tuple[int, int, int]:
        """The tokens that begin an answer's turn."""
        return self.im_start, self.assistant, self.newline


@dataclass(frozen=True, kw_only=True)
class TalkerConfig:
    """Raises ValueError for sizes that don't fit together."""

    stack: LanguageConfig
    """The talker's layers; its vocabulary is that of the first code."""
    predictor: LanguageConfig
    """The code predictor's layers; its vocabulary is that of each other code."""
    groups: int
    """Codes of a frame."""
    heard: int
    """Width of the thinker's rows."""
    inner: int
    """Width between the two matrices of a projection."""
    words: int
    """Size of the thinker's vocabulary."""
    codec: CodecTokens = field(default_factory=CodecTokens)
    spoken: SpokenTokens = field(default_factory=SpokenTokens)
    speakers: Mapping[str, int] = field(default_factory=dict[str, int])
    """Name in lower case -> its id in the talker's vocabulary."""

    def __post_init__(self) -> None:
        if self.predictor.width != self.stack.width:
            raise ValueError(
                f"the code predictor is {self.predictor.width} wide, and reads the talker's rows of {self.stack.width}"
            )
        ids = (*vars(self.codec).values(), *self.speakers.values())
        if max(ids) >= self.stack.vocab or self.groups < 2:
            raise ValueError(f"an id of {sorted(ids)[-1]} exceeds the talker's vocabulary of {self.stack.vocab}")
        if max(vars(self.spoken).values()) >= self.words:
            raise ValueError(f"the talker's special tokens exceed a vocabulary of {self.words}")

    @classmethod
    def published(cls, whole: Fields) -> Self:
        """Read the public `config.json`, whole. Raises InvalidInput or ValueError for what can't be served."""
        talker = whole.section("talker_config")
        thinker = whole.section("thinker_config").section("text_config")
        text, predictor = talker.section("text_config"), talker.section("code_predictor_config")
        groups = talker.whole("num_code_groups", _GROUPS, least=2)
        if predictor.whole("num_code_groups", _GROUPS, least=2) != groups:
            raise InvalidInput("its talker and its code predictor have different numbers of codes in a frame")
        words = thinker.whole("vocab_size", limits.VOCAB)
        stack = LanguageConfig(**rotary_sizes(_plain(text)), tied=False, moe=_experts(text))
        return cls(
            stack=stack,
            predictor=_predictor(_plain(predictor)),
            groups=groups,
            heard=talker.whole("thinker_hidden_size", limits.WIDTH),
            inner=stack.hidden,
            words=words,
            codec=_codec(talker, stack.vocab),
            spoken=_spoken(whole, talker, words),
            speakers=_speakers(talker.section("speaker_id"), stack.vocab),
        )


def _plain(config: Fields) -> Fields:
    """The section of a stack whose layers are those of this family."""
    config.word("hidden_act", ("silu",), "silu")
    if config.flag("attention_bias"):
        raise InvalidInput("its talker's layers have biases, and those of this family have none")
    rope_kind(rope_of(config), ("default",))
    return config


def _predictor(config: Fields) -> LanguageConfig:
    found: dict[str, Any] = {
        **sizes_of(config),
        "rope_theta": rope_base(config, rope_of(config)),
        "norm_eps": config.number("rms_norm_eps", limits.EPS),
    }
    return LanguageConfig(**found, tied=False, qk_norm=True)


def _experts(config: Fields) -> ExpertSizes:
    shared = config.whole("shared_expert_intermediate_size", limits.HIDDEN)
    return replace(published_experts(config), shared=shared)


def _codec(config: Fields, vocab: int) -> CodecTokens:
    names = vars(CodecTokens())
    keys = {name: f"codec_{name}_token_id" if name == "eos" else f"codec_{name}_id" for name in names}
    return CodecTokens(**{name: config.whole(key, vocab - 1, least=0) for name, key in keys.items()})


def _spoken(whole: Fields, talker: Fields, words: int) -> SpokenTokens:
    usual = SpokenTokens()

    def found(config: Fields, key: str, default: int) -> int:
        return config.whole(key, words - 1, least=0, default=default)

    return SpokenTokens(
        im_start=found(whole, "im_start_token_id", usual.im_start),
        assistant=found(whole, "assistant_token_id", usual.assistant),
        newline=found(whole, "newline_token_id", usual.newline),
        audio=found(talker, "audio_token_id", usual.audio),
        image=found(talker, "image_token_id", usual.image),
        video=found(talker, "video_token_id", usual.video),
        pad=found(whole, "tts_pad_token_id", usual.pad),
        bos=found(whole, "tts_bos_token_id", usual.bos),
        eos=found(whole, "tts_eos_token_id", usual.eos),
    )


def _speakers(config: Fields, vocab: int) -> Mapping[str, int]:
    if not 0 < len(config.values) <= _SPEAKERS:
        raise InvalidInput(f"`{config.at[:-1]}` names {len(config.values)} speakers, and must name 1 to {_SPEAKERS}")
    return {name.lower(): config.whole(name, vocab - 1, least=0) for name in config.values}


TALKER = TalkerConfig(
    stack=LanguageConfig(
        width=1024,
        hidden=2048,
        layers=20,
        heads=16,
        kv_heads=2,
        head_dim=128,
        vocab=3072,
        rope_theta=1e6,
        norm_eps=1e-6,
        tied=False,
        qk_norm=True,
        sections=(24, 20, 20),
        moe=ExpertSizes(experts=128, chosen=6, hidden=384, renormed=True, shared=768),
    ),
    predictor=LanguageConfig(
        width=1024,
        hidden=3072,
        layers=5,
        heads=16,
        kv_heads=8,
        head_dim=128,
        vocab=2048,
        rope_theta=1e6,
        norm_eps=1e-6,
        tied=False,
        qk_norm=True,
    ),
    groups=16,
    heard=2048,
    inner=2048,
    words=152064,
    speakers={"chelsie": 2301, "ethan": 2302, "aiden": 2303},
)
"""The published sizes: 3.19 billion parameters, of which a frame reads a tenth."""

TALKER_TINY = TalkerConfig(
    stack=LanguageConfig(
        width=48,
        hidden=40,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=1024 + 64,
        rope_theta=1e4,
        norm_eps=1e-6,
        tied=False,
        qk_norm=True,
        sections=(4, 2, 2),
        moe=ExpertSizes(experts=8, chosen=3, hidden=16, renormed=True, shared=24),
    ),
    predictor=LanguageConfig(
        width=48,
        hidden=56,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=64,
        rope_theta=1e4,
        norm_eps=1e-6,
        tied=False,
        qk_norm=True,
    ),
    groups=16,
    heard=64,
    inner=40,
    words=288,
    codec=CodecTokens(pad=70, bos=71, eos=72, nothink=73, think_bos=74, think_eos=75),
    spoken=SpokenTokens(
        im_start=256, assistant=260, newline=10, audio=263, image=266, video=267, pad=268, bos=269, eos=270
    ),
    speakers={"chelsie": 76, "ethan": 77, "aiden": 78},
)
"""Small enough for tests and laptops; the same classes."""
