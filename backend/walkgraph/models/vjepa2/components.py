"""V-JEPA 2-AC: a world model that predicts the next frame from actions, and plans in it (arXiv 2506.09985).

Shapes with `...` have a leading axis of samples where the node's state has a width.
"""

from collections.abc import Mapping
from pathlib import Path

from walkgraph.graph.catalogue import Append, Component, Param, StateUse, port
from walkgraph.graph.declaring import Declarations
from walkgraph.models.vjepa2.config import read_vjepa2
from walkgraph.placement.sizes import FamilySizes, Part, Shape, token_numbers

_FRAME = "features: float[..., n, d]"
_ACTION = "actions: float[..., 7]"
_POSE = "state: float[..., 7]"
_PLAN = "actions: float[t, 7]"
_MAX_NORM = Param(type="number", default=0.05, min=0, max=10, description="Longest shift along an axis, metres.")


def _share(of: str) -> Param:
    return Param(type="number", default=0.15, min=0, max=1, description=f"Share of the old {of}.")


_component = Declarations("vjepa2", category="Action", cost="launch")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "vjepa2.encoder",
        "operators:Encoder",
        "Sees a frame alone: features of its patches (16 by 16 at the published size), normalised.",
        category="Picture",
        inputs=(port("pixels", "pixels: float[3, h, w]"),),
        outputs=(port("features", "features: float[n, d]"),),
        cost="compute",
        weights="vjepa2",
        resident=True,
    ),
    _component(
        "vjepa2.predictor",
        "operators:Predictor",
        "Appends a frame with its action and pose, and predicts the features of the next frame.",
        category="Model",
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
        cost="compute",
        weights="vjepa2",
        resident=True,
    ),
    _component(
        "vjepa2.apply_action",
        "planning_operators:ApplyAction",
        "Applies an action to a pose: shift, turn, and grip within its bounds.",
        former=("vjepa2.move",),
        inputs=(port("pose", _POSE), port("action", _ACTION)),
        outputs=(port("pose", _POSE),),
        resident=True,
    ),
    _component(
        "vjepa2.store_observation",
        "planning_operators:StoreObservation",
        "Keeps what a session sees and where its arm stands, as far as it is given; gives the pose.",
        former=("vjepa2.stand",),
        category="World",
        inputs=(
            port("features", "features: float[n, d]", optional=True, description="the frame to go on from"),
            port("pose", "state: float[7]", optional=True),
        ),
        outputs=(port("pose", "state: float[7]"),),
        states=(
            StateUse(slot="pose", kind="tensor"),
            StateUse(slot="last", kind="tensor", optional=True),
        ),
    ),
    _component(
        "vjepa2.initial_plan",
        "planning_operators:InitialPlan",
        "What planning begins with: no motion, and how far the first round draws from it.",
        former=("vjepa2.rest",),
        outputs=(port("mean", _PLAN), port("std", _PLAN)),
        params={
            "horizon": Param(type="integer", default=2, min=1, max=31, description="Actions a sequence."),
            "max_norm": _MAX_NORM,
        },
    ),
    _component(
        "vjepa2.sample_actions",
        "planning_operators:SampleActions",
        "Draws the sequences of a planning round around a mean: shifts and the grip.",
        former=("vjepa2.propose",),
        inputs=(port("mean", _PLAN), port("std", _PLAN)),
        outputs=(port("actions", "actions: float[t, w, 7]", description="step by step, a row a sample"),),
        params={
            "samples": Param(type="integer", default=400, min=2, max=65536, description="Sequences a round."),
            "max_norm": _MAX_NORM,
        },
        resident=True,
    ),
    _component(
        "vjepa2.goal_distance",
        "planning_operators:GoalDistance",
        "Mean absolute difference of each sample's last frame from the goal.",
        former=("vjepa2.distance",),
        inputs=(port("features", _FRAME), port("goal", "features: float[n, d]")),
        outputs=(port("cost", "tensor: float[w]"),),
        resident=True,
    ),
    _component(
        "vjepa2.refine_plan",
        "planning_operators:RefinePlan",
        "Takes mean and spread of the best sequences, moved on slowly; its first action is the plan.",
        former=("vjepa2.refine",),
        inputs=(
            port("actions", "actions: float[t, w, 7]"),
            port("cost", "tensor: float[w]"),
            port("mean", _PLAN, description="that the sequences were drawn around"),
            port("std", _PLAN, description="that they were drawn with"),
        ),
        outputs=(
            port("mean", _PLAN),
            port("std", _PLAN),
            port("action", "actions: float[7]", description="without a change of the grip below 0.25"),
        ),
        params={
            "top": Param(type="integer", default=10, min=1, max=65536, description="Sequences kept."),
            "momentum_mean": _share("mean"),
            "momentum_std": _share("spread"),
            "momentum_mean_grip": _share("mean, of the grip"),
            "momentum_std_grip": _share("spread, of the grip"),
        },
        resident=True,
    ),
)


def _caches(folder: Path) -> Mapping[str, int]:
    sizes = read_vjepa2(folder).predictor
    return {"vjepa2.predictor": token_numbers(sizes.layers, sizes.heads, sizes.head_dim)}


_M = 2**20
SIZES: Mapping[str, FamilySizes] = {
    "vjepa2": FamilySizes(
        parts={name: Part(stem=name) for name in ("encoder", "predictor")},
        components={"vjepa2.encoder": ("encoder",), "vjepa2.predictor": ("predictor",)},
        shapes={
            "vjepa2-ac-vitg": Shape(
                parts={"encoder": 1_012_173_952, "predictor": 305_220_992},
                caches={"vjepa2.predictor": token_numbers(24, 16, 64)},
                workspace={
                    "vjepa2.encoder": 100 * _M,  # 16 pictures: 4,096 rows of an MLP, its products, graphs
                    "vjepa2.predictor": 1500 * _M,  # 131,072 rows of an MLP and what it adds to
                },
            ),
            "vjepa2-ac-tiny": Shape(
                parts={"encoder": 50_288, "predictor": 18_960}, caches={"vjepa2.predictor": token_numbers(2, 2, 16)}
            ),
        },
        caches_of=_caches,
    ),
}
