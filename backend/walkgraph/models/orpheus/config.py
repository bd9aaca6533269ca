"""Orpheus: a Llama whose vocabulary ends in audio codes.

A folder holds `model` and the public `config.json`; if its special tokens differ from the published ones,
`"speech_tokens"` in that file names them.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from walkgraph.checkpoints.decoder import LongContext
from walkgraph.checkpoints.fields import Fields, described, read_object
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.errors import InvalidInput

SLOTS = 7
"""Codes of a frame; each place has tokens of its own."""


@dataclass(frozen=True, kw_only=True)
class SpeechTokens:
    """Ids of Orpheus's vocabulary; the defaults are the published model's."""

    bos: int = 128000
    eos: int = 128009
    """Ends a text."""
    start_of_speech: int = 128257
    end_of_speech: int = 128258
    start_of_human: int = 128259
    end_of_human: int = 128260
    start_of_ai: int = 128261
    audio_base: int = 128266
    """The first of `SLOTS * codebook` audio tokens."""
    codebook: int = 4096

    @classmethod
    def after_bytes(cls, codebook: int) -> Self:
        """Ids for a vocabulary of 256 bytes, then the special tokens, then the codes."""
        special = [f.name for f in fields(cls) if f.name not in ("audio_base", "codebook")]
        ids = {name: 256 + index for index, name in enumerate(special)}
        return cls(**ids, audio_base=256 + len(special), codebook=codebook)

    @classmethod
    def of(cls, config: Fields, vocab: int) -> Self:
        """The ids that a config names, in a vocabulary of `vocab` tokens."""
        known = {field.name: field.default for field in fields(cls)}
        config.only(*known)
        ids = {name: config.whole(name, vocab - 1, least=0) for name in known if config.values.get(name) is not None}
        return cls(**ids)

    @property
    def vocab(self) -> int:
        """The least size of the vocabulary."""
        return self.audio_base + SLOTS * self.codebook


@dataclass(frozen=True, kw_only=True)
class OrpheusConfig:
    llm: LanguageConfig
    tokens: SpeechTokens = SpeechTokens()

    def __post_init__(self) -> None:
        if self.tokens.codebook < 1 or self.tokens.vocab > self.llm.vocab:
            raise ValueError(f"the audio tokens end at {self.tokens.vocab}, beyond a vocabulary of {self.llm.vocab}")


ORPHEUS_3B = OrpheusConfig(
    llm=LanguageConfig(
        width=3072,
        hidden=8192,
        layers=28,
        heads=24,
        kv_heads=8,
        head_dim=128,
        vocab=156940,
        scaling=LongContext(factor=32.0, low=1.0, high=4.0, original=8192),
    )
)
"""Orpheus 3B as published: 3.3 billion parameters."""


def read_orpheus(folder: Path) -> OrpheusConfig:
    """The config of a checkpoint folder; raises InvalidInput or NotFound with what is wrong."""
    config = Fields(read_object(folder / "config.json"))
    try:
        llm = LanguageConfig.published(config)
        tokens = SpeechTokens.of(config.section_or_empty("speech_tokens"), llm.vocab)
        if tokens.vocab > llm.vocab:
            raise InvalidInput(
                f"it is a Llama of {llm.vocab} tokens, and Orpheus has at least {tokens.vocab}, which end in "
                "audio codes: serve a Llama that only writes text as a plain language model, of the family `llm`"
            )
        return OrpheusConfig(llm=llm, tokens=tokens)
    except (InvalidInput, ValueError) as error:
        raise described("an Orpheus model", folder, error) from None
