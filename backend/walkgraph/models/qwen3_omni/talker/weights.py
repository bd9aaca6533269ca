"""The talker's parts, read from the published files or drawn at random, each once on a rank."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor, nn

from walkgraph.abi.operator import LoadContext
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.weights import Names, load
from walkgraph.errors import Refused
from walkgraph.models.qwen3_omni.config import OmniConfig, read_omni
from walkgraph.models.qwen3_omni.parts import CODE_PREDICTOR, PROJECTION, STEM, TALKER, own_name, published_name
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.talker.config import TalkerConfig
from walkgraph.models.qwen3_omni.talker.model import Projection, Talker
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor

M = TypeVar("M", bound=nn.Module)
_WORDS, _FIRST = "model.embed_tokens.weight", "model.codec_embedding.weight"


class WordRows(nn.Module):
    """The talker's row of every word of the thinker's vocabulary."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.rows = rows


class Words(nn.Module):
    """The thinker's table of words alone, under its own names."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"embed_tokens": nn.Embedding(config.words, config.heard)})


class FirstCodes(nn.Module):
    """The talker's embeddings of codes alone, under their own names."""

    def __init__(self, config: TalkerConfig) -> None:
        super().__init__()
        self.model = nn.ModuleDict({"codec_embedding": nn.Embedding(config.stack.vocab, config.stack.width)})

    @property
    def table(self) -> Tensor:
        return self.get_parameter(_FIRST)


def config_of(context: LoadContext) -> TalkerConfig:
    """Raises `Refused` for weights that have no talker."""
    found = context.once(OmniConfig, lambda name, seed: omni_config(name), read_omni).talker
    if found is None:
        raise Refused("these weights have no talker, so they can't speak; use a graph without one")
    return found


def talker_of(context: LoadContext) -> Talker:
    config = config_of(context)
    return context.once(
        Talker,
        lambda name, seed: drawn(lambda: Talker(config), seed, **_on(context)).pack(),
        lambda folder: _read(context, folder, lambda: Talker(config), own_name(TALKER)).pack(),
    )


def predictor_of(context: LoadContext) -> CodePredictor:
    config = config_of(context)

    def build() -> CodePredictor:
        return CodePredictor(config.predictor, config.groups)

    return context.once(
        CodePredictor,
        lambda name, seed: drawn(build, seed, **_on(context)).pack(),
        lambda folder: _read(context, folder, build, own_name(CODE_PREDICTOR)).pack(),
    )


def projection_of(context: LoadContext) -> Projection:
    config = config_of(context)
    return context.once(
        Projection,
        lambda name, seed: drawn(lambda: Projection(config), seed, **_on(context)),
        lambda folder: _read(context, folder, lambda: Projection(config), own_name(PROJECTION)),
    )


def words_of(context: LoadContext) -> Tensor:
    """`[N, W]`: the talker's row of every word, computed once from the thinker's table."""
    config, talker = config_of(context), talker_of(context)

    def projected(table: Words) -> WordRows:
        return WordRows(talker.words(table.get_parameter(_WORDS)))

    return context.once(
        WordRows,
        lambda name, seed: projected(drawn(lambda: Words(config), seed, **_on(context))),
        lambda folder: projected(_read(context, folder, lambda: Words(config), _only(f"thinker.{_WORDS}", _WORDS))),
    ).rows


def first_codes_of(context: LoadContext) -> Tensor:
    """`[V, W]`: the embeddings of first codes; the talker's own table where it is on this rank too."""
    if isinstance(talker := context.shared.get(Talker), Talker):
        return talker.model.codec_embedding.weight
    config = config_of(context)
    return context.once(
        FirstCodes,
        lambda name, seed: drawn(lambda: FirstCodes(config), seed, **_on(context)),
        lambda folder: _read(context, folder, lambda: FirstCodes(config), _only(f"talker.{_FIRST}", _FIRST)),
    ).table


def _only(filed: str, named: str) -> Callable[[str], str | None]:
    """`Names.rename` for one tensor of the published layout."""
    return lambda name: named if published_name(name) == filed else None


def _read(context: LoadContext, folder: Path, build: Callable[[], M], rename: Callable[[str], str | None]) -> M:
    return load(build, folder, STEM, names=Names(rename=rename), **_on(context), progress=context.progress)


def _on(context: LoadContext) -> dict[str, Any]:
    return {"device": context.device, "dtype": context.dtype}
