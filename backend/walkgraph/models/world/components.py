"""A small world to act in: a shape among walls that stop it, and an arrow that flies back and forth by itself."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Component, StateUse, port
from walkgraph.graph.declaring import PIXELS, Declarations, choice, integer
from walkgraph.placement.sizes import MIB, FamilySizes, Part, Shape

_SCENE = "state: float[28]"
_POSE = "state: float[7]"
_ACTION = "actions: float[7]"

_component = Declarations("world", category="World", cost="launch")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "world.random_scene",
        "Creates a scene and a picture of its goal from the run's seed.",
        former=("world.scene",),
        outputs=(
            port("scene", _SCENE),
            port("goal", PIXELS, description="the shape elsewhere, in another colour"),
        ),
    ),
    _component(
        "world.store_scene",
        "Keeps the scene of a session if one is given; outputs the kept scene.",
        former=("world.keep",),
        inputs=(port("scene", _SCENE, optional=True),),
        outputs=(port("scene", _SCENE),),
        states=(StateUse(slot="scene", kind="tensor"),),
    ),
    _component(
        "world.scripted_actions",
        "Outputs the given actions or those of a named drive, cut to `horizon` or padded with rest.",
        former=("world.drive",),
        category="Action",
        inputs=(port("actions", "actions: float[t, 7]", optional=True),),
        outputs=(port("actions", "actions: float[n, 7]"),),
        params={
            "drive": choice(
                ("circle", "square", "wander", "rest"), "The drive if no actions are given.", default="circle"
            ),
            "horizon": integer("Number of actions.", default=8, min=1, max=31),
        },
    ),
    _component(
        "world.simulate_action",
        "Applies an action: shifts the shape as far as the walls allow, and changes its colour by the grip.",
        former=("world.truth",),
        inputs=(
            port("scene", _SCENE),
            port(
                "action",
                _ACTION,
                description="x and y as shares of the picture's side, at most 0.08; the last number is the grip",
            ),
        ),
        outputs=(
            port("scene", _SCENE),
            port("off", "tensor: float[1]", description="distance between the shape and its goal in pixels"),
            port("reached", "flag: bool", description="the shape is within 3 pixels of its goal, with a similar grip"),
        ),
        resident=True,
    ),
    _component(
        "world.render",
        "Renders a picture of a scene, and outputs where its shape is.",
        former=("world.look",),
        deterministic=True,
        inputs=(port("scene", _SCENE),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]"), port("pose", _POSE)),
        resident=True,
    ),
    _component(
        "world.paint_features",
        "Decodes features to a picture, and reads the position of the shape from them.",
        former=("world.picture",),
        deterministic=True,
        inputs=(port("features", "features: float[n, d]"),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]"), port("pose", _POSE)),
        cost="compute",
        weights="world",
        resident=True,
    ),
    _component(
        "world.compare_pictures",
        "Puts two pictures side by side and measures the distance between their shapes.",
        former=("world.beside",),
        deterministic=True,
        inputs=(
            port("left", PIXELS),
            port("right", PIXELS),
            port("left_pose", _POSE, optional=True),
            port("right_pose", _POSE, optional=True),
        ),
        outputs=(
            port("pixels", "pixels: float[3, height, width]"),
            port("off", "tensor: float[1]", optional=True, description="distance in pixels, if both poses are given"),
        ),
        params={"scale": integer("Output pixels per side of an input pixel.", default=3, min=1, max=8)},
        resident=True,
    ),
)

SIZES: Mapping[str, FamilySizes] = {
    "world": FamilySizes(
        parts={"painter": Part(stem="painter")},
        components={"world.paint_features": ("painter",)},
        shapes={"world": Shape(parts={"painter": 224_930}, workspace={"world.paint_features": 32 * MIB})},
    ),
}
