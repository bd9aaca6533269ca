"""pi0.5: a robot policy that reads cameras, task and state once, then draws actions by flow (arXiv 2504.16054)."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Append, Component, Param, StateUse, port
from walkgraph.placement.sizes import FamilySizes, Part, Shape, token_numbers

_ACTIONS = "actions: float[t, a]"
_CAMERA = "embeddings: float[p, d]"

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="pi05.prompt",
        description="Writes the task and the digitised state as tokens: `Task: ..., State: ...; Action:`.",
        inputs=(
            port("text", "text: str"),
            port("state", "state: float[s]", description="raw; normalised by the weights' quantiles"),
        ),
        outputs=(port("ids", "tokens: int[n]"),),
        params={
            "state_width": Param(
                type="integer", default=0, min=0, max=32, description="Pad the state to this many numbers; 0: don't."
            )
        },
        cost="launch",
        weights="pi05",
        host=True,
    ),
    Component(
        name="pi05.vision",
        description="Sees one camera at 224 by 224: 256 embeddings.",
        inputs=(port("pixels", "pixels: float[3, h, w]", description="padded to a square, in [-1, 1]"),),
        outputs=(port("embeddings", _CAMERA),),
        weights="pi05",
    ),
    Component(
        name="pi05.prefix",
        description="Reads cameras and prompt as one block that sees all of itself; its cache serves every flow step.",
        inputs=(
            port("base", _CAMERA, optional=True, description="the outside camera"),
            port("left_wrist", _CAMERA, optional=True),
            port("right_wrist", _CAMERA, optional=True),
            port("ids", "tokens: int[n]"),
        ),
        states=(
            StateUse(
                slot="kv",
                kind="paged_kv",
                appends=(
                    Append(port="base"),
                    Append(port="left_wrist"),
                    Append(port="right_wrist"),
                    Append(port="ids"),
                ),
            ),
        ),
        weights="pi05",
    ),
    Component(
        name="pi05.noise",
        description="A chunk of noised actions drawn from the run's seed.",
        outputs=(port("actions", _ACTIONS),),
        params={
            "horizon": Param(type="integer", default=50, min=1, max=1024, description="Actions in a chunk."),
            "width": Param(
                type="integer", default=32, min=1, max=1024, description="Numbers in an action, padding included."
            ),
        },
        cost="launch",
    ),
    Component(
        name="pi05.expert",
        description="One flow step: attends to the prefix and moves the actions from `time` to `next_time`.",
        inputs=(port("actions", _ACTIONS, description="attended, not kept"),),
        outputs=(port("actions", _ACTIONS),),
        params={
            "time": Param(
                type="number", default=1.0, min=0, max=1, description="Flow time of the actions; 1 is noise."
            ),
            "next_time": Param(
                type="number", default=0.0, min=0, max=1, description="Flow time to step to; 0 is an action."
            ),
        },
        states=(StateUse(slot="kv", kind="paged_kv", access="read", appends=(Append(port="actions", scratch=True),)),),
        cost="launch",
        weights="pi05",
    ),
    Component(
        name="pi05.unnormalise",
        description="Brings drawn actions back to the robot's units by the weights' quantiles.",
        inputs=(port("actions", _ACTIONS),),
        outputs=(port("actions", "actions: float[t, b]"),),
        params={"width": Param(type="integer", default=7, min=1, max=32, description="Numbers in a robot's action.")},
        cost="launch",
        weights="pi05",
        host=True,
    ),
)

_M = 2**20
SIZES: Mapping[str, FamilySizes] = {
    "pi05": FamilySizes(
        parts={name: Part(files=f"{name}*.safetensors") for name in ("vision", "prefix", "expert")},
        components={"pi05.vision": ("vision",), "pi05.prefix": ("prefix",), "pi05.expert": ("expert",)},
        shapes={
            "pi05-base": Shape(
                parts={"vision": 410_000_000, "prefix": 2_510_000_000, "expert": 430_000_000},
                caches={"pi05.prefix": token_numbers(18, 1, 256), "pi05.expert": token_numbers(18, 1, 256)},
                workspace={"pi05.prefix": 250 * _M},
            ),
        },
    ),
}
