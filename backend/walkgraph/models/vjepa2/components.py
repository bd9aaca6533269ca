"""V-JEPA 2-AC: a world model that predicts the next frame from actions, and plans in it (arXiv 2506.09985).

Shapes with `...` have a leading sample axis if the node's state has a width.
"""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.graph.catalogue import Component, Param, StateUse, port
from walkgraph.graph.declaring import PIXELS, Declarations, integer, kv_cache, number
from walkgraph.models.vjepa2.config import read_vjepa2
from walkgraph.placement.sizes import MIB, FamilySizes, Part, Shape, token_numbers

_FRAME = "features: float[..., n, d]"
_ACTION = "actions: float[..., 7]"
_POSE = "state: float[..., 7]"
_PLAN = "actions: float[t, 7]"
_MAX_NORM = number("Largest shift along an axis, in metres.", default=0.05, min=0, max=10)


def _share(of: str) -> Param:
    return number(f"Weight of the old {of} in the new one.", default=0.15, min=0, max=1)


_component = Declarations("vjepa2", category="Action", cost="launch")
_planning = _component.in_module("planning_operators")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "vjepa2.encoder",
        "Encodes a single frame: normalised features of its patches (16 by 16 at the published size).",
        category="Picture",
        inputs=(port("pixels", PIXELS),),
        outputs=(port("features", "features: float[n, d]"),),
        cost="compute",
        weights="vjepa2",
        resident=True,
    ),
    _component(
        "vjepa2.predictor",
        "Appends a frame with its action and pose, and predicts the features of the next frame.",
        category="Model",
        inputs=(
            port("features", _FRAME, optional=True, description="the frame; if absent, the last predicted one"),
            port("action", _ACTION),
            port("pose", _POSE),
        ),
        outputs=(port("features", _FRAME),),
        states=(
            kv_cache("action", positions="per_block"),
            StateUse(slot="last", kind="tensor", optional=True),
        ),
        cost="compute",
        weights="vjepa2",
        resident=True,
    ),
    _planning(
        "vjepa2.apply_action",
        "Applies an action to a pose: shift, turn, and grip within its bounds.",
        former=("vjepa2.move",),
        inputs=(port("pose", _POSE), port("action", _ACTION)),
        outputs=(port("pose", _POSE),),
        resident=True,
    ),
    _planning(
        "vjepa2.store_observation",
        "Keeps the frame and the pose of a session if they are given; outputs the kept pose.",
        former=("vjepa2.stand",),
        category="World",
        inputs=(
            port("features", "features: float[n, d]", optional=True, description="the frame to continue from"),
            port("pose", "state: float[7]", optional=True),
        ),
        outputs=(port("pose", "state: float[7]"),),
        states=(
            StateUse(slot="pose", kind="tensor"),
            StateUse(slot="last", kind="tensor", optional=True),
        ),
    ),
    _planning(
        "vjepa2.initial_plan",
        "Outputs the plan that planning starts from: no motion, and the spread of the first round.",
        former=("vjepa2.rest",),
        outputs=(port("mean", _PLAN), port("std", _PLAN)),
        params={
            "horizon": integer("Number of actions per sequence.", default=2, min=1, max=31),
            "max_norm": _MAX_NORM,
        },
    ),
    _planning(
        "vjepa2.sample_actions",
        "Draws the action sequences of a planning round around a mean: shifts and the grip.",
        former=("vjepa2.propose",),
        inputs=(port("mean", _PLAN), port("std", _PLAN)),
        outputs=(port("actions", "actions: float[t, w, 7]", description="one row per step and sample"),),
        params={
            "samples": integer("Number of sequences per round.", default=400, min=2, max=65536),
            "max_norm": _MAX_NORM,
        },
        resident=True,
    ),
    _planning(
        "vjepa2.goal_distance",
        "Measures the mean absolute difference between the last frame of each sample and the goal.",
        former=("vjepa2.distance",),
        inputs=(port("features", _FRAME), port("goal", "features: float[n, d]")),
        outputs=(port("cost", "tensor: float[w]"),),
        resident=True,
    ),
    _planning(
        "vjepa2.refine_plan",
        "Moves mean and spread towards those of the best sequences; the first action of the mean is the plan.",
        former=("vjepa2.refine",),
        inputs=(
            port("actions", "actions: float[t, w, 7]"),
            port("cost", "tensor: float[w]"),
            port("mean", _PLAN, description="the mean used to draw the sequences"),
            port("std", _PLAN, description="the spread used to draw the sequences"),
        ),
        outputs=(
            port("mean", _PLAN),
            port("std", _PLAN),
            port("action", "actions: float[7]", description="changes of the grip below 0.25 become 0"),
        ),
        params={
            "top": integer("Number of sequences kept.", default=10, min=1, max=65536),
            "momentum_mean": _share("mean"),
            "momentum_std": _share("spread"),
            "momentum_mean_grip": _share("mean of the grip"),
            "momentum_std_grip": _share("spread of the grip"),
        },
        resident=True,
    ),
)


def _caches(folder: Path) -> Mapping[str, int]:
    sizes = read_vjepa2(folder).predictor
    return {"vjepa2.predictor": token_numbers(sizes.layers, sizes.heads, sizes.head_dim)}


SIZES: Mapping[str, FamilySizes] = {
    "vjepa2": FamilySizes(
        parts={name: Part(stem=name) for name in ("encoder", "predictor")},
        components={"vjepa2.encoder": ("encoder",), "vjepa2.predictor": ("predictor",)},
        shapes={
            "vjepa2-ac-vitg": Shape(
                parts={"encoder": 1_012_173_952, "predictor": 305_220_992},
                caches={"vjepa2.predictor": token_numbers(24, 16, 64)},
                workspace={
                    "vjepa2.encoder": 100 * MIB,  # 16 pictures: 4,096 rows of an MLP, its products, graphs
                    "vjepa2.predictor": 1500 * MIB,  # 131,072 rows of an MLP and what it adds to
                },
            ),
            "vjepa2-ac-tiny": Shape(
                parts={"encoder": 50_288, "predictor": 18_960}, caches={"vjepa2.predictor": token_numbers(2, 2, 16)}
            ),
        },
        caches_of=_caches,
    ),
}
