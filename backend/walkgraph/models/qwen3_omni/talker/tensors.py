"""The tensors of the talker's parts, by their names in each part's module, found without torch."""

from collections.abc import Iterator

from walkgraph.checkpoints.family import decoder_layer, linear, norm
from walkgraph.checkpoints.files import Shape
from walkgraph.models.qwen3_omni.talker.config import TalkerConfig

Tensors = Iterator[tuple[str, Shape]]


def talker_tensors(config: TalkerConfig) -> Tensors:
    stack = config.stack
    yield "model.codec_embedding.weight", (stack.vocab, stack.width)
    for layer in range(stack.layers):
        yield from decoder_layer(f"model.layers.{layer}", stack, layer)
    yield from norm("model.norm", stack.width, bias=False)
    yield "codec_head.weight", (stack.vocab, stack.width)
    for name, shape in projection_tensors(config):
        yield f"text_projection.{name}", shape


def projection_tensors(config: TalkerConfig) -> Tensors:
    """One of the two projections of the thinker's rows."""
    yield from linear("linear_fc1", config.inner, config.heard)
    yield from linear("linear_fc2", config.stack.width, config.inner)


def predictor_tensors(config: TalkerConfig) -> Tensors:
    stack = config.predictor
    for layer in range(stack.layers):
        yield from decoder_layer(f"model.layers.{layer}", stack, layer)
    yield from norm("model.norm", stack.width, bias=False)
    for index in range(config.groups - 1):
        yield f"model.codec_embedding.{index}.weight", (stack.vocab, stack.width)
        yield f"lm_head.{index}.weight", (stack.vocab, stack.width)
