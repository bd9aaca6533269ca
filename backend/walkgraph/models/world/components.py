"""A small world to act in: a shape among walls that stop it, and an arrow that flies to and fro by itself."""

from collections.abc import Mapping

from walkgraph.graph.catalogue import Component, Param, StateUse, port
from walkgraph.placement.sizes import FamilySizes, Part, Shape

_SCENE = "state: float[28]"
_PIXELS = "pixels: float[3, h, w]"
_POSE = "state: float[7]"
_ACTION = "actions: float[7]"

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="world.random_scene",
        former=("world.scene",),
        category="World",
        description="Draws a scene from the run's seed, and the picture of how it should become.",
        outputs=(
            port("scene", _SCENE),
            port("goal", _PIXELS, description="the shape elsewhere, in another colour"),
        ),
        cost="launch",
        network="walkgraph.models.world.operators:Begin",
    ),
    Component(
        name="world.store_scene",
        former=("world.keep",),
        category="World",
        description="Keeps a session's scene, where one is given; gives the one that is kept.",
        inputs=(port("scene", _SCENE, optional=True),),
        outputs=(port("scene", _SCENE),),
        states=(StateUse(slot="scene", kind="tensor"),),
        cost="launch",
        network="walkgraph.models.world.operators:Keep",
    ),
    Component(
        name="world.scripted_actions",
        former=("world.drive",),
        category="Action",
        description="Actions by name, or those that are given, cut to a length or followed by rest.",
        inputs=(port("actions", "actions: float[t, 7]", optional=True),),
        outputs=(port("actions", "actions: float[n, 7]"),),
        params={
            "drive": Param(
                type="string",
                default="circle",
                choices=("circle", "square", "wander", "rest"),
                description="Where no actions are given.",
            ),
            "horizon": Param(type="integer", default=8, min=1, max=31, description="Actions."),
        },
        cost="launch",
        network="walkgraph.models.world.operators:Drive",
    ),
    Component(
        name="world.simulate_action",
        former=("world.truth",),
        category="World",
        description="What an action does: shifts the shape as far as the walls let it, and its colour by its grip.",
        inputs=(
            port("scene", _SCENE),
            port("action", _ACTION, description="x and y in sides of the picture, 0.08 at most; the last is the grip"),
        ),
        outputs=(
            port("scene", _SCENE),
            port("off", "tensor: float[1]", description="pixels between the shape and its goal"),
            port("reached", "flag: bool", description="3 pixels at most, and the grip alike"),
        ),
        cost="launch",
        network="walkgraph.models.world.operators:Truth",
        resident=True,
    ),
    Component(
        name="world.render",
        former=("world.look",),
        category="World",
        description="The picture of a scene, and where its shape is.",
        inputs=(port("scene", _SCENE),),
        outputs=(port("pixels", _PIXELS, description="RGB in [-1, 1]"), port("pose", _POSE)),
        cost="launch",
        network="walkgraph.models.world.operators:Look",
        resident=True,
    ),
    Component(
        name="world.paint_features",
        former=("world.picture",),
        category="World",
        description="Paints what features show, and reads from them where the shape is.",
        inputs=(port("features", "features: float[n, d]"),),
        outputs=(port("pixels", _PIXELS, description="RGB in [-1, 1]"), port("pose", _POSE)),
        network="walkgraph.models.world.operators:Paint",
        weights="world",
        resident=True,
    ),
    Component(
        name="world.compare_pictures",
        former=("world.beside",),
        category="World",
        description="Two pictures next to each other, and how far their shapes are apart.",
        inputs=(
            port("left", _PIXELS),
            port("right", _PIXELS),
            port("left_pose", _POSE, optional=True),
            port("right_pose", _POSE, optional=True),
        ),
        outputs=(
            port("pixels", "pixels: float[3, height, width]"),
            port("off", "tensor: float[1]", optional=True, description="pixels, where both poses are given"),
        ),
        params={"scale": Param(type="integer", default=3, min=1, max=8, description="Pixels of a side for each one.")},
        cost="launch",
        network="walkgraph.models.world.operators:Beside",
        resident=True,
    ),
)

SIZES: Mapping[str, FamilySizes] = {
    "world": FamilySizes(
        parts={"painter": Part(stem="painter")},
        components={"world.paint_features": ("painter",)},
        shapes={"world": Shape(parts={"painter": 224_930}, workspace={"world.paint_features": 32 * 2**20})},
    ),
}
