"""Orpheus: a Llama that speaks audio codes, seven to a frame."""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.graph.catalogue import Append, Component, Param, StateUse, port
from walkgraph.graph.declaring import Declarations, sampling_params
from walkgraph.models.orpheus.config import read_orpheus
from walkgraph.placement.sizes import TOKENIZER, FamilySizes, Part, Shape, token_numbers

VOICES = ("tara", "leah", "jess", "leo", "dan", "mia", "zac", "zoe")

_component = Declarations("orpheus", weights="orpheus")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "orpheus.prompt",
        "operators:Prompt",
        "Frames a text as a voice's turn: `voice: text` between the turn's special tokens.",
        category="Text",
        inputs=(port("text", "text: str"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "voice": Param(type="string", default="tara", choices=VOICES, description="Who speaks."),
            "begin": Param(
                type="boolean",
                default=False,
                description="Put the begin token in front of the turn too, as the published package does.",
            ),
        },
        cost="launch",
        host=True,
    ),
    _component(
        "orpheus.backbone",
        "operators:Backbone",
        "Reads the prompt and speaks one audio code a step.",
        category="Model",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="the prompt, appended"),
            port("token", "tokens: int[1]", optional=True, description="one token, appended"),
        ),
        outputs=(
            port("token", "tokens: int[1]", description="the next token, sampled"),
            port("code", "codes: int[1]", description="its audio code: token minus offset, modulo the codebook"),
            port("stop", "flag: bool", description="the next token ends the speech"),
        ),
        params={
            **sampling_params(temperature=0.6, top_p=0.8),
            "min_p": Param(
                type="number",
                default=0.0,
                min=0,
                max=1,
                description="Leave out tokens less likely than this part of the likeliest; 0: none.",
            ),
            "repetition_penalty": Param(
                type="number", default=1.3, min=1, max=10, description="Divides the logits of tokens seen before."
            ),
            "presence_penalty": Param(
                type="number", default=0.0, min=-2, max=2, description="Taken off the logits of tokens spoken before."
            ),
            "frequency_penalty": Param(
                type="number",
                default=0.0,
                min=-2,
                max=2,
                description="Taken off the logits of a token for every time that it was spoken before.",
            ),
        },
        states=(
            StateUse(slot="kv", kind="paged_kv", appends=(Append(port="ids"), Append(port="token"))),
            StateUse(slot="seen", kind="tensor"),
        ),
        cost="memory",
        resident=True,
    ),
)


def _orpheus_caches(folder: Path) -> Mapping[str, int]:
    llm = read_orpheus(folder).llm
    return {"orpheus.backbone": token_numbers(llm.layers, llm.kv_heads, llm.head_dim)}


_M = 2**20
SIZES: Mapping[str, FamilySizes] = {
    "orpheus": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={"model": Part(stem="model")},
        components={"orpheus.backbone": ("model",)},
        shapes={
            "orpheus-3b": Shape(
                parts={"model": 3_300_867_072},
                caches={"orpheus.backbone": token_numbers(28, 8, 128)},
                workspace={"orpheus.backbone": 250 * _M},
            ),
            "orpheus-tiny": Shape(parts={"model": 75_840}, caches={"orpheus.backbone": token_numbers(2, 2, 16)}),
        },
        caches_of=_orpheus_caches,
    ),
}
