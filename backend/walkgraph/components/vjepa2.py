"""V-JEPA 2-AC: a world model that predicts the next frame from actions, and plans in it (arXiv 2506.09985).

Shapes with `...` have a leading axis of samples where the node's state has a width.
"""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Append, Component, Param, StateUse, port
from walkgraph.placement.sizes import FamilySizes, Part, Shape, token_numbers

_FRAME = "features: float[..., n, d]"
_ACTION = "actions: float[..., 7]"
_POSE = "state: float[..., 7]"

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="vjepa2.encoder",
        description="Sees a frame alone: 16 by 16 features, normalised.",
        inputs=(port("pixels", "pixels: float[3, h, w]"),),
        outputs=(port("features", "features: float[n, d]"),),
        weights="vjepa2",
    ),
    Component(
        name="vjepa2.predictor",
        description="Appends a frame with its action and pose, and predicts the features of the next frame.",
        inputs=(
            port("features", _FRAME, optional=True, description="the frame; absent: the one predicted last"),
            port("action", _ACTION),
            port("pose", _POSE),
        ),
        outputs=(port("features", _FRAME),),
        states=(
            StateUse(slot="kv", kind="paged_kv", appends=(Append(port="action", positions="per_block"),)),
            StateUse(slot="last", kind="tensor", optional=True),
        ),
        weights="vjepa2",
    ),
    Component(
        name="vjepa2.move",
        description="Applies an action to a pose: shift, turn, and grip within its bounds.",
        inputs=(port("pose", _POSE), port("action", _ACTION)),
        outputs=(port("pose", _POSE),),
        cost="launch",
    ),
    Component(
        name="vjepa2.propose",
        description="Draws the sequences of a planning round around a mean; without one, around rest.",
        inputs=(
            port("mean", "actions: float[t, 7]", optional=True),
            port("std", "actions: float[t, 7]", optional=True),
        ),
        outputs=(port("actions", "actions: float[t, w, 7]", description="step by step, a row a sample"),),
        params={
            "samples": Param(type="integer", default=400, min=2, max=65536, description="Sequences a round."),
            "horizon": Param(type="integer", default=2, min=1, max=31, description="Actions a sequence."),
            "max_norm": Param(
                type="number", default=0.05, min=0, max=10, description="Longest shift of one action, metres."
            ),
        },
        states=(StateUse(slot="rng", kind="rng"),),
        cost="launch",
    ),
    Component(
        name="vjepa2.distance",
        description="Mean absolute difference of each sample's last frame from the goal.",
        inputs=(port("features", _FRAME), port("goal", "features: float[n, d]")),
        outputs=(port("cost", "tensor: float[w]"),),
        cost="launch",
    ),
    Component(
        name="vjepa2.refine",
        description="Takes mean and spread of the best sequences, moved on slowly; its first action is the plan.",
        inputs=(
            port("actions", "actions: float[t, w, 7]"),
            port("cost", "tensor: float[w]"),
            port("mean", "actions: float[t, 7]", optional=True, description="of the round before"),
            port("std", "actions: float[t, 7]", optional=True, description="of the round before"),
        ),
        outputs=(
            port("mean", "actions: float[t, 7]"),
            port("std", "actions: float[t, 7]"),
            port("action", "actions: float[7]"),
        ),
        params={
            "top": Param(type="integer", default=10, min=1, max=65536, description="Sequences kept."),
            "momentum_mean": Param(type="number", default=0.25, min=0, max=1, description="Share of the old mean."),
            "momentum_std": Param(type="number", default=0.95, min=0, max=1, description="Share of the old spread."),
        },
        cost="launch",
    ),
)

_M = 2**20
SIZES: Mapping[str, FamilySizes] = {
    "vjepa2": FamilySizes(
        parts={name: Part(files=f"{name}*.safetensors") for name in ("encoder", "predictor")},
        components={"vjepa2.encoder": ("encoder",), "vjepa2.predictor": ("predictor",)},
        shapes={
            "vjepa2-ac-vitg": Shape(
                parts={"encoder": 1_010_000_000, "predictor": 305_000_000},
                caches={"vjepa2.predictor": token_numbers(24, 16, 64)},
                workspace={"vjepa2.predictor": 1000 * _M},
            ),
        },
    ),
}
