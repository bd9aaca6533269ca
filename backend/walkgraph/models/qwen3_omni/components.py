"""Qwen3-Omni: a thinker that sees, hears and writes, a talker and a vocoder that speak (arXiv 2509.17765).

A frame is 16 codes at 12.5 Hz. The talker reads the thinker's rows projected to its own width: half the bytes.
"""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.declaring import (
    APPENDED,
    SAMPLED,
    Declarations,
    choice,
    integer,
    kv_cache,
    number,
    sampling_params,
)
from walkgraph.models.qwen3_omni.hearing.components import HEARING
from walkgraph.models.qwen3_omni.seeing.components import SEEING
from walkgraph.models.qwen3_omni.vocoder import components as vocoder
from walkgraph.placement.sizes import MIB, TOKENIZER, FamilySizes, Part, Shape, token_numbers

SPEAKERS = ("chelsie", "ethan", "aiden")

_component = Declarations("qwen3_omni", module=None, category="Model", weights="qwen3_omni")

_THINKER = (
    _component(
        "qwen3_omni.turn_marker",
        "Writes the special tokens of a conversation, which a client's text can't contain.",
        former=("qwen3_omni.turn",),
        category="Text",
        inputs=(port("text", "text: str", optional=True, description="the system prompt; other turns have no text"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "mark": choice(
                ("system", "user", "answer"),
                "The system's turn, the start of the user's turn, or its end and the start of the answer.",
            )
        },
        cost="launch",
        host=True,
    ),
    _component(
        "qwen3_omni.thinker",
        "Appends text, sound or a picture to the conversation and generates the answer, one token per step.",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="text, appended"),
            APPENDED,
            port(
                "audio",
                "embeddings: float[n, d]",
                optional=True,
                description="sound, appended between its special tokens",
            ),
            port(
                "image",
                "embeddings: float[n, d]",
                optional=True,
                description="a picture, appended between its special tokens",
            ),
            port(
                "deepstack",
                "features: float[3, n, d]",
                optional=True,
                description="the features that belong to `image`",
            ),
            port("grid", "tensor: int[3]", optional=True, description="the grid of `image`"),
        ),
        outputs=(
            SAMPLED,
            port("stop", "flag: bool", description="the next token ends the answer"),
            port(
                "embeddings", "embeddings: float[m, d]", description="the appended rows at the input of the first layer"
            ),
            port("hidden", "features: float[m, d]", description="the appended rows after layer 24"),
            port("positions", "tensor: int[m, 3]", description="time, row and column of the appended rows"),
        ),
        params=sampling_params(temperature=0.7, top_p=0.8, top_k=20),
        states=(kv_cache("ids", "token", "audio", "image", positions="axes"),),
        cost="memory",
    ),
    _component(
        "qwen3_omni.talker_projection",
        "Projects the thinker's rows to the talker's width: `embeddings` for text and marks, `hidden` for media.",
        former=("qwen3_omni.projection",),
        inputs=(
            port("embeddings", "embeddings: float[m, d]"),
            port(
                "hidden",
                "features: float[m, d]",
                optional=True,
                description="the rows of sound or a picture, between its special tokens",
            ),
        ),
        outputs=(port("rows", "features: float[m, e]"),),
        cost="launch",
    ),
)

_TALKER = (
    _component(
        "qwen3_omni.talker",
        "Reads the user's turn, then generates the first code of one frame per step, one answer token ahead.",
        inputs=(
            port(
                "prompt",
                "features: float[m, e]",
                optional=True,
                description="the rows of the turn; the speaker's special tokens follow them",
            ),
            port("positions", "tensor: int[m, 3]", optional=True, description="the positions of `prompt`"),
            port(
                "answer",
                "features: float[1, e]",
                optional=True,
                description="the row of the next answer token; if absent, the end of the answer, then padding",
            ),
            port(
                "frame",
                "embeddings: float[1, e]",
                optional=True,
                description="the last frame; if absent, the begin code",
            ),
        ),
        outputs=(
            port("code", "codes: int[1]", description="the first code of the frame, sampled"),
            port("hidden", "embeddings: float[1, e]", description="after the final norm"),
            port("stop", "flag: bool", description="the code ends the speech"),
        ),
        params={
            "speaker": choice(SPEAKERS, "The voice of the speaker.", default="ethan"),
            **sampling_params(temperature=0.9, top_p=1.0, top_k=50),
            "repetition_penalty": number("Divides the logits of codes seen before.", default=1.05, min=1, max=10),
        },
        states=(
            kv_cache("prompt", "answer", positions="axes"),
            StateUse(slot="seen", kind="tensor"),
            StateUse(slot="ended", kind="tensor"),
        ),
        cost="memory",
    ),
    _component(
        "qwen3_omni.code_predictor",
        "Generates the other fifteen codes of a frame, one per pass, each from the ones before.",
        inputs=(
            port(
                "hidden", "embeddings: float[1, e]", optional=True, description="starts a frame; appended before `code`"
            ),
            port("code", "codes: int[1]", description="the previous code, appended"),
        ),
        outputs=(port("code", "codes: int[1]", description="the next code of the frame, sampled"),),
        params={
            "group": integer("Index of the head to use, of fifteen.", default=0, min=0, max=14),
            **sampling_params(temperature=1.0, top_p=0.8, top_k=50),
        },
        states=(kv_cache("hidden", "code"),),
        cost="launch",
    ),
    _component(
        "qwen3_omni.join_codes",
        "Joins the codes of a frame, and adds up their embeddings for the talker's next step.",
        former=("qwen3_omni.frame",),
        inputs=(
            port("first", "codes: int[1]", description="the talker's code"),
            port("second", "codes: int[1]"),
            port("rest", "codes: int[k, 1]", description="the other fourteen codes"),
        ),
        outputs=(port("codes", "codes: int[1, 16]"), port("embedding", "embeddings: float[1, e]")),
        cost="launch",
    ),
)

COMPONENTS: tuple[Component, ...] = (*HEARING, *SEEING, *_THINKER, *_TALKER, *vocoder.COMPONENTS)

SIZES: Mapping[str, FamilySizes] = {
    "qwen3_omni": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={
            name: Part(stem=name)
            for name in ("audio", "vision", "thinker", "projection", "talker", "code_predictor", "code2wav")
        },
        components={
            "qwen3_omni.audio_encoder": ("audio",),
            "qwen3_omni.vision_encoder": ("vision",),
            "qwen3_omni.video_encoder": ("vision",),
            "qwen3_omni.thinker": ("thinker",),
            "qwen3_omni.talker_projection": ("projection",),
            "qwen3_omni.talker": ("talker",),
            "qwen3_omni.code_predictor": ("code_predictor",),
            "qwen3_omni.join_codes": ("code_predictor",),
            "qwen3_omni.code2wav": ("code2wav",),
        },
        shapes={
            "qwen3-omni-30b-a3b": Shape(
                parts={
                    "audio": 647_927_168,
                    "vision": 538_631_408,
                    "thinker": 30_530_000_000,
                    "projection": 12_600_000,
                    "talker": 3_172_000_000,
                    "code_predictor": 141_600_000,
                    "code2wav": vocoder.NUMBERS["qwen3-omni-30b-a3b"],
                },
                caches={
                    "qwen3_omni.thinker": token_numbers(48, 4, 128),
                    "qwen3_omni.talker": token_numbers(20, 2, 128),
                    "qwen3_omni.code_predictor": token_numbers(5, 8, 128),
                },
                workspace={
                    "qwen3_omni.audio_encoder": 300 * MIB,
                    "qwen3_omni.vision_encoder": 1000 * MIB,
                    "qwen3_omni.video_encoder": 1000 * MIB,
                    "qwen3_omni.thinker": 1000 * MIB,
                    "qwen3_omni.talker": 250 * MIB,
                    "qwen3_omni.code2wav": 800 * MIB,
                },
            ),
        },
    ),
}
