"""Components that think: the marks of turns, and the language model that reads and answers."""

from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.declaring import (
    APPENDED,
    SAMPLED,
    Declarations,
    boolean,
    choice,
    integer,
    kv_cache,
    literal,
    penalty_params,
    sampling_params,
)

_component = Declarations("qwen3_omni", module="thinker.operators", category="Model", weights="qwen3_omni")

THINKING: tuple[Component, ...] = (
    _component.in_module("thinker.turn_operators")(
        "qwen3_omni.turn_marker",
        "Writes the special tokens of a conversation, which a client's text can't contain.",
        former=("qwen3_omni.turn",),
        category="Text",
        deterministic=True,
        inputs=(
            port(
                "text",
                "text: str",
                optional=True,
                description="all of the turn's text; its end follows. What an "
                "assistant thought (`<think>`) is left out",
            ),
            port(
                "token",
                "tokens: int[1]",
                optional=True,
                description="of `end`: the last token that was generated, which stands before the end unless it is one",
            ),
            port(
                "said",
                "tokens: int[1]",
                optional=True,
                description="of `end`: the last token that was appended, as the thinker gives it; after -1 the end "
                "is there already",
            ),
        ),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "mark": choice(
                ("system", "user", "assistant", "end"), "The speaker whose turn begins, or the end of any turn."
            ),
            "context": integer("Maximum number of tokens; 0 sets no limit.", default=0, min=0, max=2**20),
        },
        cost="launch",
        host=True,
    ),
    _component(
        "qwen3_omni.thinker",
        "Appends text, sound, a picture or a video to the conversation and generates the answer, one token per step.",
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
                description="a picture or a video, appended between its special tokens; with `audio`, the video's "
                "sound, which may have no rows, is appended with it, by time",
            ),
            port(
                "deepstack",
                "features: float[k, n, d]",
                optional=True,
                description="the features that belong to `image`",
            ),
            port("grid", "tensor: int[3]", optional=True, description="the grid of `image`: frames, rows and columns"),
            port(
                "seconds",
                "scalar: float",
                optional=True,
                description="the time between two frames of the grid; a picture has none",
            ),
        ),
        outputs=(
            SAMPLED,
            port("stop", "flag: bool", description="the next token ends the answer, or the appended one did"),
            port("said", "tokens: int[1]", description="the appended token; -1 if it ends the answer"),
            port(
                "appended",
                "tokens: int[m]",
                optional=True,
                description="what was appended, for the talker: text, and tokens that stand for rows of media",
            ),
            port(
                "names",
                "tensor: int[m]",
                optional=True,
                description="numbers that tell what each appended row was computed from: those of text are its tokens, "
                "those of media are negative; -1 if it isn't known",
            ),
            port(
                "hidden",
                "features: float[k, d]",
                optional=True,
                description="the rows of media after the layer that the talker reads, without special tokens",
            ),
            port(
                "positions",
                "tensor: float[m, 3]",
                optional=True,
                description="time, row and column of what was appended, from its first row on",
            ),
            port("logits", "tensor: float[v]", optional=True, description="of the next token, as the model gives them"),
        ),
        params={
            **sampling_params(temperature=0.0, top_p=0.8, top_k=20),
            **penalty_params(),
            "logits": boolean("Output `logits` outside device loops too.", default=False),
            "precision": literal(
                choice(
                    ("bf16", "fp8"),
                    "Number format of experts. fp8 is faster, takes less memory and is less exact. It must be a "
                    "literal, the same for all nodes with these weights.",
                    default="bf16",
                )
            ),
        },
        states=(kv_cache("ids", "token", "audio", "image", positions="axes"), StateUse(slot="seen", kind="tensor")),
        cost="memory",
        resident=True,
    ),
)
