"""The talker's components."""

from walkgraph.graph.catalogue import Component, Param, StateUse, port
from walkgraph.graph.declaring import Declarations, boolean, integer, kv_cache, number, sampling_params

_component = Declarations("qwen3_omni", module="talker.operators", category="Model", weights="qwen3_omni")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "qwen3_omni.talker_projection",
        "Projects the thinker's rows of sound and pictures to the talker's width.",
        former=("qwen3_omni.projection",),
        deterministic=True,
        inputs=(
            port(
                "hidden",
                "features: float[k, d]",
                optional=True,
                description="the thinker's rows of sound or a picture, in order; absent where the thinker read them "
                "before and no talker needs them",
            ),
        ),
        outputs=(port("rows", "features: float[k, e]", optional=True),),
        cost="launch",
    ),
    _component.in_module("talker.script_operators")(
        "qwen3_omni.script",
        "Gives the tokens of a text that is to be said, one for each frame of its speech.",
        category="Text",
        deterministic=True,
        inputs=(port("text", "text: str", description="the text to say"),),
        outputs=(port("ids", "tokens: int[f, 1]", description="-1 in the frames after the last token"),),
        params={"frames": integer("Maximum number of frames of the speech.", default=1500, min=1, max=65536)},
        cost="launch",
        host=True,
    ),
    _component(
        "qwen3_omni.talker",
        "Reads the user's turns, then generates the first code of one frame per step, one word of the answer each.",
        inputs=(
            port(
                "ids",
                "tokens: int[m]",
                optional=True,
                description="the user's turns, appended with the speaker's special tokens behind them; a call without "
                "any input appends these alone, where the state has the turns already",
            ),
            port(
                "media",
                "features: float[k, e]",
                optional=True,
                description="the projected rows of sound and pictures, in the order of their places in `ids`",
            ),
            port(
                "positions",
                "tensor: float[m, 3]",
                optional=True,
                description="time, row and column of `ids`, each piece counted from its own start; if absent, of text",
            ),
            port(
                "names",
                "tensor: int[m]",
                optional=True,
                description="numbers that tell what the rows of `media` were computed from, as the thinker gives them; "
                "if absent, turns with media are read anew each time",
            ),
            port(
                "text",
                "tokens: int[1]",
                optional=True,
                description="the next token of the answer; if absent, the end of the answer, then padding",
                seconds=0.08,  # one in every frame of speech
            ),
            port("frame", "embeddings: float[1, e]", optional=True, description="the last frame, or `begin`"),
        ),
        outputs=(
            port("begin", "embeddings: float[1, e]", optional=True, description="the first `frame`, after `ids`"),
            port("code", "codes: int[1]", description="the first code of the frame, sampled"),
            port("hidden", "embeddings: float[1, e]", description="after the final norm"),
            port("stop", "flag: bool", description="this frame is not spoken any more"),
            port(
                "derailed",
                "flag: bool",
                optional=True,
                description="the speech was stopped because it went on too long after the answer",
            ),
        ),
        params={
            "opening": boolean(
                "Append the special tokens that begin an answer behind `ids`. False reads turns alone, for a state "
                "from which each answer of a session is forked.",
                default=True,
            ),
            "speaker": Param(type="string", default="ethan", description="The voice of the speaker."),
            **sampling_params(temperature=0.9, top_p=1.0, top_k=50),
            "repetition_penalty": number("Divides the logits of codes generated before.", default=1.05, min=1, max=10),
            "frames_per_token": integer(
                "Once the answer has ended, the speech is stopped after this many frames for each of its tokens and "
                "five seconds more; 0 never stops it.",
                default=12,
                min=0,
                max=4096,
            ),
            "min_frames": integer(
                "The speech doesn't end by itself before so many frames.", default=0, min=0, max=65536
            ),
        },
        states=(
            kv_cache("ids", "frame", positions="axes"),
            StateUse(slot="heard", kind="tensor"),
            StateUse(slot="seen", kind="tensor"),
        ),
        cost="memory",
        resident=True,
        reasons={"stop": ("derailed",)},
        itemwise=("text",),
    ),
    _component(
        "qwen3_omni.code_predictor",
        "Generates the other codes of a frame, each from the ones before, and adds up the embeddings of all.",
        inputs=(
            port("code", "codes: int[1]", description="the first code"),
            port("hidden", "embeddings: float[1, e]", description="the talker's row of the frame"),
        ),
        outputs=(
            port("codes", "codes: int[1, c]", description="all codes of the frame"),
            port("embedding", "embeddings: float[1, e]", description="for the talker's next step"),
        ),
        params=sampling_params(temperature=1.0, top_p=0.8, top_k=50),
        cost="launch",
        resident=True,
    ),
)
