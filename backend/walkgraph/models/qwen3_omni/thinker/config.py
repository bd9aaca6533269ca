"""Sizes of the thinker, and the tokens that mark turns and media."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from walkgraph.checkpoints import limits
from walkgraph.checkpoints.decoder import rope_base, rope_of, sizes_of
from walkgraph.checkpoints.family import language_model
from walkgraph.checkpoints.fields import Fields
from walkgraph.checkpoints.files import Shape
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig, published_experts

_PAIRS, _AXES, _RATE = limits.HEAD_DIM, 3, 1000.0


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Ids of the tokens that a client's text can't contain, and of those that name roles."""

    im_start: int = 151644
    im_end: int = 151645
    """Ends a turn, and so an answer."""
    system: int = 8948
    user: int = 872
    assistant: int = 77091
    newline: int = 198
    """Follows a role, and the end of a turn."""
    audio_start: int = 151669
    audio_end: int = 151670
    audio: int = 151675
    """Stands for a row of sound."""
    vision_start: int = 151652
    vision_end: int = 151653
    image: int = 151655
    """Stands for a row of a picture."""
    video: int = 151656
    """Stands for a row of a video's pictures."""

    @classmethod
    def published(cls, whole: Fields, thinker: Fields) -> Self:
        """Reads the whole config, and its section on the thinker."""

        def id_of(at: Fields, key: str, default: int | None = None) -> int:
            return at.whole(f"{key}_token_id", limits.VOCAB, least=0, default=default)

        audio_start, vision_start = id_of(thinker, "audio_start"), id_of(thinker, "vision_start", cls.vision_start)
        return cls(
            im_start=id_of(whole, "im_start", cls.im_start),
            im_end=id_of(whole, "im_end", cls.im_end),
            system=id_of(whole, "system", cls.system),
            user=id_of(whole, "user", id_of(thinker, "user", cls.user)),
            assistant=id_of(whole, "assistant", cls.assistant),
            newline=id_of(whole, "newline", cls.newline),
            audio_start=audio_start,
            audio_end=id_of(thinker, "audio_end", audio_start + 1),
            audio=id_of(thinker, "audio"),
            vision_start=vision_start,
            vision_end=id_of(thinker, "vision_end", vision_start + 1),
            image=id_of(thinker, "image"),
            video=id_of(thinker, "video"),
        )


@dataclass(frozen=True, kw_only=True)
class ThinkerConfig:
    """Raises ValueError for sizes that don't fit together."""

    llm: LanguageConfig
    marks: Marks = Marks()
    rate: float = 13.0
    """Positions that a second of video takes on the axis of time."""
    deepstack: int = 3
    """Layers, counted from the first, after which the features of a picture are added."""
    told: int | None = 24
    """Layers that rows of media pass before the talker reads them; None without a talker."""

    def __post_init__(self) -> None:
        if self.deepstack > self.llm.layers:
            raise ValueError(f"{self.deepstack} features of a picture exceed {self.llm.layers} layers")
        if self.told is not None and not self.deepstack < self.told <= self.llm.layers:
            raise ValueError(
                f"`accept_hidden_layer` {self.told} must be above {self.deepstack} features of a picture and at most "
                f"{self.llm.layers} layers"
            )
        outside = {name: token for name, token in vars(self.marks).items() if token >= self.llm.vocab}
        if outside:
            raise ValueError(f"the tokens {outside} exceed a vocabulary of {self.llm.vocab}")

    @classmethod
    def published(cls, whole: Fields) -> Self:
        """Reads the whole config of a checkpoint. Raises InvalidInput or ValueError for another model."""
        thinker = whole.section("thinker_config")
        talker = whole.section_or_empty("talker_config") if speaks(whole) else None
        vision = thinker.section("vision_config")
        told = None if talker is None else talker.whole("accept_hidden_layer", limits.LAYERS)
        return cls(
            llm=_language(thinker.section("text_config")),
            marks=Marks.published(whole, thinker),
            rate=thinker.number("position_id_per_seconds", _RATE),
            deepstack=len(vision.wholes("deepstack_visual_indexes", limits.LAYERS, limits.LAYERS, least=0)),
            told=told,
        )

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """Names, without the part's prefix, and shapes."""
        yield from language_model(self.llm).expected.items()


def speaks(whole: Fields) -> bool:
    """False for a checkpoint without a talker, such as the thinking one."""
    return whole.flag("enable_audio_output", default=True) and whole.values.get("talker_config") is not None


def sections_of(rope: Fields) -> tuple[int, ...]:
    """Pairs of a head's dimensions that turn by time, row and column."""
    return rope.wholes("mrope_section", _PAIRS, _AXES, least=0)


def rotary_sizes(config: Fields) -> Mapping[str, Any]:
    """The fields of a `LanguageConfig` that thinker and talker share: sizes, norms and positions on three axes."""
    rope = rope_of(config)
    sizes = sizes_of(config)
    return {
        **sizes,
        "rope_theta": rope_base(config, rope),
        "norm_eps": config.number("rms_norm_eps", limits.EPS),
        "sections": sections_of(rope),
        "qk_norm": True,
    }


def _language(config: Fields) -> LanguageConfig:
    config.word("hidden_act", ("silu",), "silu")
    tied = config.flag("tie_word_embeddings")
    return LanguageConfig(**rotary_sizes(config), tied=tied, moe=published_experts(config))


PUBLISHED = ThinkerConfig(
    llm=LanguageConfig(
        width=2048,
        hidden=768,
        layers=48,
        heads=32,
        kv_heads=4,
        head_dim=128,
        vocab=152064,
        rope_theta=1e6,
        norm_eps=1e-6,
        sections=(24, 20, 20),
        tied=False,
        qk_norm=True,
        moe=ExpertSizes(experts=128, chosen=8, hidden=768, renormed=True),
    ),
)
TINY = ThinkerConfig(
    llm=replace(
        PUBLISHED.llm,
        width=64,
        hidden=32,
        layers=5,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=288,
        rope_theta=1e4,
        sections=(4, 2, 2),
        moe=ExpertSizes(experts=8, chosen=2, hidden=32, renormed=True),
    ),
    marks=Marks(
        im_start=256,
        im_end=257,
        system=258,
        user=259,
        assistant=260,
        newline=10,
        audio_start=261,
        audio_end=262,
        audio=263,
        vision_start=264,
        vision_end=265,
        image=266,
        video=267,
    ),
    told=4,
)
"""A vocabulary of bytes and marks."""
