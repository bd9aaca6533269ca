"""pi0.5: a robot policy that reads cameras, task and state once, then draws actions by flow (arXiv 2504.16054)."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Append, Component, Param, port
from walkgraph.graph.declaring import PIXELS, Declarations, integer, kv_cache, number
from walkgraph.models.pi05.config import read_pi05
from walkgraph.placement.sizes import MIB, TOKENIZER, FamilySizes, Part, Shape, token_numbers, token_numbers_of

_ACTIONS = "actions: float[t, a]"
_CAMERA = "embeddings: float[p, d]"
_LEVELS = "pixels: int[h, w, 3]"
_ROBOT = Param(
    type="string",
    default="",
    form="literal",
    description="The robot whose quantiles to use, if the weights have several.",
)

_component = Declarations("pi05", weights="pi05")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "pi05.camera",
        "Decodes a camera picture and fits it into the model's square with black borders. No input, no output.",
        category="Picture",
        inputs=(port("image", "image: bytes", optional=True),),
        outputs=(
            port("pixels", PIXELS, optional=True, description="RGB in [-1, 1]"),
            port("levels", _LEVELS, optional=True, description="the same as RGB of 0 to 255, a quarter of the bytes"),
        ),
        host=True,
    ),
    _component(
        "pi05.prompt",
        "Writes the task and the digitized state as tokens: `Task: ..., State: ...; Action:`.",
        category="Text",
        inputs=(
            port("text", "text: str"),
            port("state", "state: float[s]", description="raw; normalized here with the weights' quantiles"),
        ),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "state_width": integer("Pad the state to this many numbers; 0 adds no padding.", default=0, min=0, max=32),
            "robot": _ROBOT,
        },
        cost="launch",
        host=True,
    ),
    _component(
        "pi05.vision",
        "Encodes one camera picture: 224 by 224 pixels give 256 embeddings at the published size. No input, no output.",
        category="Picture",
        inputs=(
            port("pixels", PIXELS, optional=True, description="padded to a square, in [-1, 1]"),
            port("levels", _LEVELS, optional=True, description="the same as RGB of 0 to 255; it goes before `pixels`"),
        ),
        outputs=(port("embeddings", _CAMERA, optional=True),),
    ),
    _component(
        "pi05.prefill",
        "Reads cameras and prompt as one block with full attention; every flow step reads its cache.",
        former=("pi05.prefix",),
        category="Model",
        inputs=(
            port("base", _CAMERA, optional=True, description="the camera that shows the whole robot"),
            port("left_wrist", _CAMERA, optional=True),
            port("right_wrist", _CAMERA, optional=True),
            port("ids", "tokens: int[n]"),
        ),
        states=(kv_cache("base", "left_wrist", "right_wrist", "ids"),),
    ),
    _component(
        "pi05.timestep_conditioning",
        "Computes the modulations of the expert's norms for each flow step; they are the same for every run.",
        former=("pi05.modulations",),
        category="Flow matching",
        outputs=(
            port("modulations", "tensor: float[steps, n]", description="one row per step, from noise to actions"),
        ),
        params={"steps": integer("Number of flow steps.", default=10, min=1, max=100)},
        cost="launch",
    ),
    _component(
        "pi05.noise",
        "Draws a chunk of noise from the run's seed, to start the actions from.",
        category="Flow matching",
        outputs=(port("actions", _ACTIONS),),
        params={
            "horizon": integer("Number of actions in a chunk.", default=50, min=1, max=1024),
            "width": integer("Numbers per action, including padding.", default=32, min=1, max=1024),
        },
        cost="launch",
        weights=None,
    ),
    _component(
        "pi05.action_expert",
        "One flow step: attends to the prefix and moves the actions from `time` to `next_time`.",
        former=("pi05.expert",),
        category="Flow matching",
        inputs=(
            port("actions", _ACTIONS, description="attended but not kept"),
            port("modulation", "tensor: float[n]", description="the modulation at `time`"),
        ),
        outputs=(port("actions", _ACTIONS),),
        params={
            "time": number("Flow time of the actions; 1 is noise.", default=1.0, min=0, max=1),
            "next_time": number("Flow time to step to; 0 is an action.", default=0.0, min=0, max=1),
        },
        states=(kv_cache(Append(port="actions", scratch=True), access="read"),),
        cost="launch",
        resident=True,
    ),
    _component(
        "pi05.unnormalise",
        "Converts generated actions to the robot's units with the weights' quantiles.",
        category="Action",
        inputs=(port("actions", _ACTIONS),),
        outputs=(port("actions", "actions: float[t, b]"),),
        params={
            "width": integer("Numbers per action of the robot.", default=7, min=1, max=32),
            "robot": _ROBOT,
        },
        cost="launch",
        host=True,
    ),
)

_CACHED = ("pi05.prefill", "pi05.action_expert")
SIZES: Mapping[str, FamilySizes] = {
    "pi05": FamilySizes(
        holds=frozenset({TOKENIZER}),
        parts={"model": Part(stem="model")},
        components=dict.fromkeys(
            ("pi05.vision", "pi05.prefill", "pi05.timestep_conditioning", "pi05.action_expert"), ("model",)
        ),
        shapes={
            "pi05-base": Shape(
                parts={"model": 3_353_433_872},
                caches=dict.fromkeys(_CACHED, token_numbers(18, 1, 256)),
                workspace={
                    "pi05.vision": 300 * MIB,  # 24 cameras, and graphs of each batch size
                    "pi05.prefill": 400 * MIB,  # 8 prefixes of 1,000 rows: their MLP's hidden numbers twice
                    "pi05.action_expert": 500 * MIB,  # dense contexts of 16 rows, graphs
                },
            ),
            "pi05-tiny": Shape(
                parts={"model": 91_720},
                caches=dict.fromkeys(_CACHED, token_numbers(3, 1, 8)),
            ),
        },
        caches_of=lambda folder: dict.fromkeys(_CACHED, token_numbers_of(read_pi05(folder))),
    ),
}
