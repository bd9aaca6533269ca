"""Plain language models: they continue a text."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.declaring import (
    APPENDED,
    SAMPLED,
    Declarations,
    boolean,
    choice,
    kv_cache,
    literal,
    penalty_params,
    sampling_params,
)
from walkgraph.models.llm.config import read_llm
from walkgraph.models.llm.presets import llm_config
from walkgraph.placement.sizes import MIB, TOKENIZER, FamilySizes, Part, Shape, token_numbers, token_numbers_of

_component = Declarations("llm", weights="llm")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "llm.prompt",
        "Turns a text into the tokens that the model continues, with those that its tokenizer puts around a text.",
        category="Text",
        deterministic=True,
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        cost="launch",
        host=True,
    ),
    _component(
        "llm.backbone",
        "Reads the prompt and generates one token per step.",
        category="Model",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="text, appended"),
            APPENDED,
            port("bias", "tensor: float[m, 2]", optional=True, description="tokens, and what is added to their logits"),
        ),
        outputs=(
            SAMPLED,
            port("stop", "flag: bool", description="the next token ends the text, or the appended one did"),
            port("logits", "tensor: float[v]", optional=True, description="of the next token, as the model gives them"),
        ),
        params={
            **sampling_params(temperature=0.7, top_p=0.8, top_k=20),
            **penalty_params(),
            "logits": boolean("Output `logits` outside device loops too.", default=False),
            "precision": literal(
                choice(
                    ("bf16", "fp8", "int4"),
                    "fp8: experts are kept in eight bits; faster, half their memory, less exact. int4: the linears of "
                    "layers without experts are kept in four bits; a quarter of their memory, less exact. It must be "
                    "a literal, the same for all nodes with these weights.",
                    default="bf16",
                )
            ),
        },
        states=(
            kv_cache("ids", "token"),
            StateUse(slot="seen", kind="tensor"),
        ),
        cost="memory",
        resident=True,
        tensor_parallel=True,
    ),
    _component(
        "llm.logit_bias",
        "Completes a request's list of tokens and what is added to their logits to the size that all requests share.",
        category="Text",
        inputs=(
            port(
                "pairs", "tensor: float[n, 2]", optional=True, description="a token and a number from -100 to 100 each"
            ),
        ),
        outputs=(port("bias", "tensor: float[m, 2]", optional=True),),
        cost="launch",
        host=True,
    ),
)


def _shape(numbers: int, cache: int, workspace: int = 0, experts: int = 0, linears: int = 0) -> Shape:
    """`workspace`: of the largest batch, in MiB of numbers. `experts` and `linears`: how many are theirs."""
    sized = {"llm.backbone": workspace * MIB} if workspace else {}
    counts, few = {"model": experts} if experts else {}, {"model": linears} if linears else {}
    return Shape(parts={"model": numbers}, caches={"llm.backbone": cache}, workspace=sized, experts=counts, linears=few)


SIZES: Mapping[str, FamilySizes] = {
    "llm": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={"model": Part(stem="model")},
        components={"llm.backbone": ("model",)},
        shapes={
            "qwen3-0.6b": _shape(596_049_920, token_numbers(28, 8, 128), 150, linears=440_401_920),
            "qwen3-8b": _shape(8_190_735_360, token_numbers(36, 8, 128), 400, linears=6_945_767_424),
            "qwen3-32b": _shape(32_762_123_264, token_numbers(64, 8, 128), 700, linears=31_205_621_760),
            "qwen3-30b-a3b": _shape(30_532_122_624, token_numbers(48, 4, 128), 700, 48 * 128 * 3 * 2048 * 768),
            "llama-3.2-3b": _shape(3_212_749_824, token_numbers(28, 8, 128), 250, linears=2_818_572_288),
            "llama-3.1-8b": _shape(8_030_261_248, token_numbers(32, 8, 128), 400, linears=6_979_321_856),
            "mistral-7b": _shape(7_248_023_552, token_numbers(32, 8, 128), 400, linears=6_979_321_856),
            "qwen3-tiny": _shape(54_448, token_numbers(2, 2, 16)),
            "qwen3-moe-tiny": _shape(139_440, token_numbers(3, 2, 16), experts=2 * 8 * 3 * 48 * 32),
            "llama-tiny": _shape(54_384, token_numbers(2, 2, 16)),
            "mistral-tiny": _shape(63_984, token_numbers(2, 1, 16)),
        },
        caches_of=lambda folder: {"llm.backbone": token_numbers_of(read_llm(folder).llm)},
        divided=lambda source: {"model": (llm_config(source) if isinstance(source, str) else read_llm(source)).llm},
    ),
}
