"""Qwen3-Omni: a thinker that sees, hears and writes, a talker and a vocoder that speak (arXiv 2509.17765).

A frame is 16 codes at 12.5 Hz. The talker reads the thinker's rows projected to its own width: half the bytes.
"""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Append, Component, Param, StateUse, port
from walkgraph.graph.declaring import Declarations, sampling_params
from walkgraph.placement.sizes import TOKENIZER, FamilySizes, Part, Shape, token_numbers

SPEAKERS = ("chelsie", "ethan", "aiden")

_component = Declarations("qwen3_omni", category="Model", weights="qwen3_omni")

_ENCODERS = (
    _component(
        "qwen3_omni.audio_encoder",
        None,
        "Hears 16 kHz sound: 13 embeddings a second.",
        category="Sound",
        inputs=(port("waveform", "waveform: float[s]"),),
        outputs=(port("embeddings", "embeddings: float[n, d]"),),
    ),
    _component(
        "qwen3_omni.vision_encoder",
        None,
        "Sees a picture: one embedding for each 32 by 32 pixels, and what three of its inner layers saw.",
        category="Picture",
        inputs=(port("pixels", "pixels: float[3, h, w]"),),
        outputs=(
            port("embeddings", "embeddings: float[n, d]"),
            port("deepstack", "features: float[3, n, d]", description="added after the thinker's first three layers"),
            port("grid", "tensor: int[3]", description="frames, rows and columns of the embeddings"),
        ),
    ),
)

_THINKER = (
    _component(
        "qwen3_omni.turn_marker",
        None,
        "Writes a conversation's marks, which a client's text can't.",
        former=("qwen3_omni.turn",),
        category="Text",
        inputs=(port("text", "text: str", optional=True, description="the system prompt; of the others, nothing"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "mark": Param(
                type="string",
                choices=("system", "user", "answer"),
                description="The system's turn, the user's begin, or its end and the answer's begin.",
            )
        },
        cost="launch",
        host=True,
    ),
    _component(
        "qwen3_omni.thinker",
        None,
        "Appends text, sound or a picture to the conversation and writes the answer, a token a step.",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="text, appended"),
            port("token", "tokens: int[1]", optional=True, description="one token, appended"),
            port("audio", "embeddings: float[n, d]", optional=True, description="sound, appended between its marks"),
            port(
                "image", "embeddings: float[n, d]", optional=True, description="a picture, appended between its marks"
            ),
            port("deepstack", "features: float[3, n, d]", optional=True, description="of `image`"),
            port("grid", "tensor: int[3]", optional=True, description="of `image`"),
        ),
        outputs=(
            port("token", "tokens: int[1]", description="the next token, sampled"),
            port("stop", "flag: bool", description="the next token ends the answer"),
            port("embeddings", "embeddings: float[m, d]", description="the appended rows as they entered"),
            port("hidden", "features: float[m, d]", description="the appended rows after layer 24"),
            port("positions", "tensor: int[m, 3]", description="time, row and column of the appended rows"),
        ),
        params=sampling_params(temperature=0.7, top_p=0.8, top_k=20),
        states=(
            StateUse(
                slot="kv",
                kind="paged_kv",
                appends=(
                    Append(port="ids", positions="axes"),
                    Append(port="token", positions="axes"),
                    Append(port="audio", positions="axes"),
                    Append(port="image", positions="axes"),
                ),
            ),
        ),
        cost="memory",
    ),
    _component(
        "qwen3_omni.talker_projection",
        None,
        "Brings the thinker's rows to the talker's width: text and marks by embeddings, media by `hidden`.",
        former=("qwen3_omni.projection",),
        inputs=(
            port("embeddings", "embeddings: float[m, d]"),
            port(
                "hidden", "features: float[m, d]", optional=True, description="of sound or a picture between its marks"
            ),
        ),
        outputs=(port("rows", "features: float[m, e]"),),
        cost="launch",
    ),
)

_TALKER = (
    _component(
        "qwen3_omni.talker",
        None,
        "Reads the user's turn, then speaks the first code of a frame a step, one answer token ahead.",
        inputs=(
            port(
                "prompt",
                "features: float[m, e]",
                optional=True,
                description="the turn's rows; the speaker's marks follow them",
            ),
            port("positions", "tensor: int[m, 3]", optional=True, description="of `prompt`"),
            port(
                "answer",
                "features: float[1, e]",
                optional=True,
                description="the next answer token's row; absent: its end, then padding",
            ),
            port(
                "frame", "embeddings: float[1, e]", optional=True, description="the last frame; absent: the begin code"
            ),
        ),
        outputs=(
            port("code", "codes: int[1]", description="the first code of the frame, sampled"),
            port("hidden", "embeddings: float[1, e]", description="after the final norm"),
            port("stop", "flag: bool", description="the code ends the speech"),
        ),
        params={
            "speaker": Param(type="string", default="ethan", choices=SPEAKERS, description="Who speaks."),
            **sampling_params(temperature=0.9, top_p=1.0, top_k=50),
            "repetition_penalty": Param(
                type="number", default=1.05, min=1, max=10, description="Divides the logits of codes seen before."
            ),
        },
        states=(
            StateUse(
                slot="kv",
                kind="paged_kv",
                appends=(Append(port="prompt", positions="axes"), Append(port="answer", positions="axes")),
            ),
            StateUse(slot="seen", kind="tensor"),
            StateUse(slot="ended", kind="tensor"),
        ),
        cost="memory",
    ),
    _component(
        "qwen3_omni.code_predictor",
        None,
        "Finds the other fifteen codes of a frame, one a pass, each from the ones before.",
        inputs=(
            port(
                "hidden", "embeddings: float[1, e]", optional=True, description="begins a frame, appended before `code`"
            ),
            port("code", "codes: int[1]", description="the code before, appended"),
        ),
        outputs=(port("code", "codes: int[1]", description="the next code of the frame, sampled"),),
        params={
            "group": Param(type="integer", default=0, min=0, max=14, description="Which of the fifteen heads answers."),
            **sampling_params(temperature=1.0, top_p=0.8, top_k=50),
        },
        states=(StateUse(slot="kv", kind="paged_kv", appends=(Append(port="hidden"), Append(port="code"))),),
        cost="launch",
    ),
    _component(
        "qwen3_omni.join_codes",
        None,
        "Joins a frame's codes, and adds their embeddings for the talker's next step.",
        former=("qwen3_omni.frame",),
        inputs=(
            port("first", "codes: int[1]", description="the talker's"),
            port("second", "codes: int[1]"),
            port("rest", "codes: int[k, 1]", description="the other fourteen"),
        ),
        outputs=(port("codes", "codes: int[1, 16]"), port("embedding", "embeddings: float[1, e]")),
        cost="launch",
    ),
)

_VOCODER = (
    _component(
        "qwen3_omni.code2wav",
        None,
        "Sounds code frames, 1920 samples each at 24 kHz; context frames aren't sounded again, "
        "and alone give no samples.",
        category="Sound",
        inputs=(port("codes", "codes: int[n, 16]"),),
        outputs=(port("waveform", "waveform: float[s]"),),
        states=(StateUse(slot="cursor", kind="tensor"),),
    ),
)

COMPONENTS: tuple[Component, ...] = (*_ENCODERS, *_THINKER, *_TALKER, *_VOCODER)

_M = 2**20
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
                    "audio": 648_000_000,
                    "vision": 539_000_000,
                    "thinker": 30_530_000_000,
                    "projection": 12_600_000,
                    "talker": 3_172_000_000,
                    "code_predictor": 141_600_000,
                    "code2wav": 216_000_000,
                },
                caches={
                    "qwen3_omni.thinker": token_numbers(48, 4, 128),
                    "qwen3_omni.talker": token_numbers(20, 2, 128),
                    "qwen3_omni.code_predictor": token_numbers(5, 8, 128),
                },
                workspace={"qwen3_omni.thinker": 1000 * _M, "qwen3_omni.talker": 250 * _M},
            ),
        },
    ),
}
