"""Orpheus: a Llama that speaks audio codes, seven to a frame."""

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
from walkgraph.models.orpheus.config import read_orpheus
from walkgraph.models.orpheus.presets import orpheus_config
from walkgraph.placement.sizes import MIB, TOKENIZER, FamilySizes, Part, Shape, token_numbers, token_numbers_of

VOICES = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")

_component = Declarations("orpheus", weights="orpheus")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "orpheus.prompt",
        "Writes a text as the prompt of a voice: `voice: text` between the special tokens of the turn.",
        category="Text",
        deterministic=True,
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "voice": choice(VOICES, "The voice of the speaker.", default="tara"),
            "begin": boolean("Put the begin token before the turn, as the published package does.", default=False),
        },
        cost="launch",
        host=True,
    ),
    _component(
        "orpheus.backbone",
        "Reads the prompt and generates one audio code per step.",
        category="Model",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="the prompt, appended"),
            APPENDED,
        ),
        outputs=(
            SAMPLED,
            port(
                "code",
                "codes: int[1]",
                description="the audio code of `token`: the token minus an offset, modulo the codebook size",
            ),
            port("stop", "flag: bool", description="the next token ends the speech"),
        ),
        params={
            **sampling_params(temperature=0.6, top_p=0.8),
            **penalty_params(repetition=1.3),
            "precision": literal(
                choice(
                    ("bf16", "int4"),
                    "Number format of the layers' linears. int4 takes a quarter of their memory and is less exact. It "
                    "must be a literal, the same for all nodes with these weights.",
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
)

SIZES: Mapping[str, FamilySizes] = {
    "orpheus": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={"model": Part(stem="model")},
        components={"orpheus.backbone": ("model",)},
        shapes={
            "orpheus-3b": Shape(
                parts={"model": 3_300_867_072},
                caches={"orpheus.backbone": token_numbers(28, 8, 128)},
                workspace={"orpheus.backbone": 250 * MIB},
                linears={"model": 2_818_572_288},
            ),
            "orpheus-tiny": Shape(parts={"model": 75_840}, caches={"orpheus.backbone": token_numbers(2, 2, 16)}),
        },
        caches_of=lambda folder: {"orpheus.backbone": token_numbers_of(read_orpheus(folder).llm)},
        divided=lambda source: {
            "model": (orpheus_config(source) if isinstance(source, str) else read_orpheus(source)).llm
        },
    ),
}
