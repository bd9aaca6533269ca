"""Decoder layers in one launch on a GPU: near the same layers in float32, and equal in any batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from walkgraph.memory.cuda_source import is_available
from walkgraph.models.qwen3_omni.presets import omni_config
from walkgraph.models.qwen3_omni.talker.predictor import CodePredictor

TALKER = omni_config("qwen3-omni-30b-a3b").talker
assert TALKER is not None
SIZES, GROUPS = TALKER.predictor, TALKER.groups
CUDA = torch.device("cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
    pytest.mark.skipif(not is_available(), reason="needs cuda-bindings"),
]


def weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    with torch.device("meta"):
        shapes = {name: one.shape for name, one in CodePredictor(SIZES, GROUPS).state_dict().items()}

    def drawn(name: str, shape: torch.Size) -> Tensor:
        numbers = torch.randn(shape, generator=generator)
        if "norm" in name:
            return 1 + 0.2 * numbers
        return numbers if "embedding" in name else numbers / shape[-1] ** 0.5

    return {name: drawn(name, shape).bfloat16() for name, shape in shapes.items()}


def network(given: dict[str, Tensor], dtype: torch.dtype) -> CodePredictor:
    with CUDA:
        made = CodePredictor(SIZES, GROUPS).to(dtype)
    made.load_state_dict({name: one.to(dtype) for name, one in given.items()})
    return made.pack()


@pytest.fixture(scope="module")
def networks() -> tuple[CodePredictor, CodePredictor]:
    """One in bfloat16, whose layers are one launch, and one in float32, layer after layer."""
    given = weights()
    return network(given, torch.bfloat16), network(given, torch.float32)


def rows(count: int, seed: int = 5) -> Tensor:
    return torch.randn(count, SIZES.width, generator=torch.Generator().manual_seed(seed)).to(CUDA)


@torch.inference_mode()
def logits(model: CodePredictor, hidden: Tensor, first: Tensor, codes: Tensor) -> Tensor:
    """Logits of all further codes `[C - 1, B, V]`, each behind codes `[C, B]` that are given."""
    found: list[Tensor] = []

    def given(index: int, made: Tensor) -> Tensor:
        found.append(made.float())
        return codes[index + 1].contiguous()

    dtype = model.model.norm.weight.dtype
    model.frames(hidden.to(dtype), first.to(dtype), codes[0].contiguous(), given)
    return torch.stack(found)


def codes_of(count: int) -> Tensor:
    return torch.randint(-1, SIZES.vocab, (GROUPS, count), generator=torch.Generator().manual_seed(7)).to(CUDA)


@pytest.mark.parametrize("count", [1, 3, 4, 8, 9, 16, 17])
def test_a_launch_is_near_float32(networks: tuple[CodePredictor, CodePredictor], count: int) -> None:
    given = rows(count), rows(count, 6), codes_of(count)
    made, wanted = (logits(one, *given) for one in networks)
    off = (made - wanted).norm(dim=-1) / wanted.norm(dim=-1)
    print(f"{count} frames: median {float(off.median()):.4f}, largest {float(off.max()):.4f}")
    assert float(off.max()) < 0.03


def test_a_frame_is_the_same_in_any_batch(networks: tuple[CodePredictor, CodePredictor]) -> None:
    model, _ = networks
    hidden, first, codes = rows(16), rows(16, 6), codes_of(16)
    whole = logits(model, hidden, first, codes)
    for begin, end in ((0, 1), (0, 3), (3, 8), (2, 11), (0, 16)):
        part = logits(model, hidden[begin:end], first[begin:end], codes[:, begin:end])
        assert torch.equal(part, whole[:, begin:end]), (begin, end)


@torch.inference_mode()
def test_captured_launches_of_several_batches_share_a_workspace(
    networks: tuple[CodePredictor, CodePredictor],
) -> None:
    model, _ = networks
    graphs, inputs, kept = list[torch.cuda.CUDAGraph](), list[object](), list[tuple[Tensor, Tensor]]()
    for count in (1, 16, 5):
        given = rows(count), rows(count, 6), codes_of(count)
        wanted = logits(model, *given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = logits(model, *given)
        graphs.append(graph)
        inputs.append(given)  # which the graph reads again
        kept.append((made, wanted))
    for _ in range(20):
        for graph, (made, wanted) in zip(graphs, kept, strict=True):
            made.zero_()
            graph.replay()
            assert torch.equal(made, wanted)
