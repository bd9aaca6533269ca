"""A small world to act in: a planar arm of two links, and coloured targets, one of which an instruction names."""

from walkgraph.graph.catalogue import Component, port
from walkgraph.graph.declaring import PIXELS, Declarations, integer

_SCENE = "state: float[12]"
_SIDE = integer("Side of the picture in pixels.", default=64, min=16, max=512)

_component = Declarations("reach", category="World", cost="launch")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "reach.random_scene",
        "Creates a scene from the run's seed: the arm, and two or three targets, one of the named colour.",
        former=("reach.scene",),
        inputs=(port("instruction", "text: str", description="must name one colour, such as `reach the red ball`"),),
        outputs=(
            port("scene", _SCENE),
            port("joints", "state: float[2]", description="angles of the arm's joints, in radians"),
        ),
        host=True,
    ),
    _component(
        "reach.render",
        "Renders a picture of a scene.",
        former=("reach.picture",),
        deterministic=True,
        inputs=(port("scene", _SCENE),),
        outputs=(port("pixels", PIXELS, description="RGB in [-1, 1]"),),
        params={"side": _SIDE},
    ),
    _component(
        "reach.move_arm",
        "Moves the arm by the first actions of a chunk; the arm stops when it reaches the named target.",
        former=("reach.drive",),
        inputs=(
            port("scene", _SCENE),
            port("actions", "actions: float[t, a]", description="speeds of the joints in radians per second"),
            port("before", "scalar: int", optional=True, description="actions taken so far; 0 if absent"),
        ),
        outputs=(
            port("scene", _SCENE),
            port("joints", "state: float[2]", description="angles of the arm's joints, in radians"),
            port("reached", "flag: bool"),
            port("taken", "scalar: int", description="actions taken so far, including these"),
        ),
        params={
            "apply": integer("Maximum number of actions taken from the chunk.", default=2, min=1, max=1024),
        },
        host=True,
    ),
)
