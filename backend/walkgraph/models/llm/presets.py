"""Configurations of language models for `random:CONFIG:SEED` sources."""

from dataclasses import replace

from walkgraph.checkpoints.decoder import LongContext
from walkgraph.checkpoints.language import ExpertSizes, LanguageConfig
from walkgraph.checkpoints.presets import preset
from walkgraph.models.llm.config import LlmConfig

_BOS, _EOS = 256, 257
"""Edges of a text of bytes, in the tiny vocabularies."""
_QWEN = LanguageConfig(
    width=4096,
    hidden=12288,
    layers=36,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=151936,
    rope_theta=1e6,
    norm_eps=1e-6,
    tied=False,
    qk_norm=True,
)
_LLAMA = LanguageConfig(
    width=4096,
    hidden=14336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    scaling=LongContext(factor=8.0, low=1.0, high=4.0, original=8192),
    tied=False,
)
_TINY = LanguageConfig(width=48, hidden=80, layers=2, heads=4, kv_heads=2, head_dim=16, vocab=264, rope_theta=1e4)
_QWEN_STOPS, _LLAMA_STOPS = (151643, 151645), (128001, 128008, 128009)

LLM: dict[str, LlmConfig] = {
    "qwen3-0.6b": LlmConfig(
        llm=replace(_QWEN, width=1024, hidden=3072, layers=28, heads=16, tied=True), stops=_QWEN_STOPS
    ),
    "qwen3-8b": LlmConfig(llm=_QWEN, stops=_QWEN_STOPS),
    "qwen3-32b": LlmConfig(llm=replace(_QWEN, width=5120, hidden=25600, layers=64, heads=64), stops=_QWEN_STOPS),
    "qwen3-30b-a3b": LlmConfig(
        llm=replace(
            _QWEN,
            width=2048,
            hidden=6144,
            layers=48,
            kv_heads=4,
            moe=ExpertSizes(experts=128, chosen=8, hidden=768, renormed=True),
        ),
        stops=_QWEN_STOPS,
    ),
    "llama-3.2-3b": LlmConfig(
        llm=replace(
            _LLAMA,
            width=3072,
            hidden=8192,
            layers=28,
            heads=24,
            scaling=LongContext(factor=32.0, low=1.0, high=4.0, original=8192),
            tied=True,
        ),
        stops=_LLAMA_STOPS,
    ),
    "llama-3.1-8b": LlmConfig(llm=_LLAMA, stops=_LLAMA_STOPS),
    "mistral-7b": LlmConfig(llm=replace(_LLAMA, vocab=32768, rope_theta=1e6, scaling=None), stops=(2,)),
    "qwen3-tiny": LlmConfig(llm=replace(_TINY, norm_eps=1e-6, qk_norm=True), stops=(_EOS,)),
    "qwen3-moe-tiny": LlmConfig(
        llm=replace(
            _TINY,
            layers=3,
            norm_eps=1e-6,
            qk_norm=True,
            tied=False,
            moe=ExpertSizes(experts=8, chosen=2, hidden=32, renormed=True, dense=(1,)),
        ),
        stops=(_EOS,),
    ),
    "llama-tiny": LlmConfig(
        llm=replace(_TINY, scaling=LongContext(factor=8.0, low=1.0, high=4.0, original=64)), stops=(_EOS,)
    ),
    "mistral-tiny": LlmConfig(llm=replace(_TINY, kv_heads=1, tied=False), stops=(_EOS,)),
}
"""Full-size shapes as published, tiny ones for tests; both use the same classes."""


def llm_config(name: str) -> LlmConfig:
    return preset(LLM, name)


def text_edges(name: str) -> tuple[int, int]:
    """Ids of the tokens that begin and end a text."""
    vocab = llm_config(name).llm.vocab
    edges = {151936: (151644, 151645), 128256: (128000, 128009), 32768: (1, 2)}
    return edges.get(vocab, (_BOS, _EOS))
