"""Plain language models in the layout of Transformers: a folder holds `config.json`, `model` and a tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from walkgraph.checkpoints.fields import Fields, described, read_object, read_optional
from walkgraph.checkpoints.language import KINDS, LanguageConfig
from walkgraph.errors import InvalidInput

MOST_BIASES, MOST_BIAS = 300, 100
"""The most tokens whose logits a request changes, and the most that it adds to one or takes from it."""
_STOPS = 64
"""The most tokens that end a text."""
_ENDS = "eos_token_id"


@dataclass(frozen=True, kw_only=True)
class LlmConfig:
    llm: LanguageConfig
    stops: tuple[int, ...] = ()
    """Tokens that end a text. Without any, a text ends at its length."""

    def __post_init__(self) -> None:
        if any(not 0 <= token < self.llm.vocab for token in self.stops):
            raise ValueError(f"the tokens {self.stops} that end a text exceed a vocabulary of {self.llm.vocab}")


def read_llm(folder: Path) -> LlmConfig:
    """The config of a checkpoint folder; raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    generation = Fields(read_optional(folder / "generation_config.json"))
    try:
        llm = LanguageConfig.published(config, KINDS)
        named = generation if generation.values.get(_ENDS) is not None else config
        return LlmConfig(llm=llm, stops=_stops(named, llm.vocab))
    except (InvalidInput, ValueError) as error:
        raise described("a language model", folder, error) from None


def _stops(config: Fields, vocab: int) -> tuple[int, ...]:
    """One id, or a list of them."""
    value: Any = config.values.get(_ENDS)
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(sorted({*config.wholes(_ENDS, vocab - 1, _STOPS, least=0)})) if cast(list[Any], value) else ()
    return (config.whole(_ENDS, vocab - 1, least=0),)
