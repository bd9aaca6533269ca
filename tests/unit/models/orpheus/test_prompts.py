from __future__ import annotations

from collections.abc import Callable

import torch

from walkgraph.abi.states import CausalRows
from walkgraph.architectures.captured_prompts import CapturedPrompts
from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.fresh_prompts import MOST, SIZES, FreshPrompts
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.models.orpheus.presets import orpheus_config

CONFIG = orpheus_config("orpheus-tiny").llm
SPARE = 999


def pool() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    shape = (1000, CONFIG.kv_heads, CONFIG.head_dim)
    return [torch.zeros(shape) for _ in range(CONFIG.layers)], [torch.zeros(shape) for _ in range(CONFIG.layers)]


def rows(k: list[torch.Tensor], v: list[torch.Tensor], slots: torch.Tensor, counts: list[int]) -> CausalRows:
    """Rows of sequences that begin with them; a prompt's graph reads no pages."""
    return CausalRows(k, v, slots, SPARE, counts, [0] * len(counts), [[]] * len(counts))


def eager(work: Callable[[], None], what: str) -> Callable[[], None]:
    """A capture that runs once, as a device does, before it is replayed."""
    work()
    return work


def read(prompts: CapturedPrompts, given: list[torch.Tensor], to: CausalRows | None) -> torch.Tensor | None:
    found = prompts.read(torch.cat(given), [at for ids in given for at in range(len(ids))], to)
    return found[0] if found is not None else None


@torch.inference_mode()
def test_packed_prompts_are_read_as_each_alone() -> None:
    model = drawn(lambda: LanguageModel(CONFIG), 0, device=torch.device("cpu"), dtype=torch.float32)
    k, v = pool()
    prompts = CapturedPrompts(FreshPrompts(model), eager)
    for seed, lengths in enumerate(([5], [32], [1, 30, 2], [40, 9, 3, 3], [500, 12])):
        generator = torch.Generator().manual_seed(seed)
        given = [torch.randint(0, CONFIG.vocab, (n,), generator=generator) for n in lengths]
        slots = torch.randperm(900, generator=generator)[: sum(lengths)]
        found = read(prompts, given, rows(k, v, slots, lengths))
        assert found is not None
        start = 0
        for ids, logits in zip(given, found, strict=True):
            n = len(ids)
            attend = PackedAttend((n,), mask=causal_mask(n), keep=True)
            alone = model(ids, torch.arange(n), attend)
            assert torch.allclose(logits, alone[-1], atol=1e-4)
            for layer, (key, value) in enumerate(attend.kept):
                assert torch.allclose(k[layer][slots[start : start + n]], key[0], atol=1e-5)
                assert torch.allclose(v[layer][slots[start : start + n]], value[0], atol=1e-5)
            start += n


def test_what_has_a_context_or_is_long_is_left_to_a_plain_forward() -> None:
    k, v = pool()
    prompts = CapturedPrompts(FreshPrompts(lambda *given: torch.zeros(MOST, 1)), eager)
    one = torch.zeros(1, dtype=torch.int64)
    assert read(prompts, [one], None) is None
    long = torch.zeros(SIZES[-1] + 1, dtype=torch.int64)
    assert read(prompts, [long], rows(k, v, torch.arange(len(long)), [len(long)])) is None
    many = [one] * (MOST + 1)
    assert read(prompts, many, rows(k, v, torch.arange(len(many)), [1] * len(many))) is None
    assert read(prompts, [one], rows(k, v, one, [1])._replace(before=[16])) is None
    assert read(CapturedPrompts(FreshPrompts(lambda *given: one), None), [one], rows(k, v, one, [1])) is None
