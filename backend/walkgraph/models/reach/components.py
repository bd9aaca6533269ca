"""A small world to act in: a planar arm of two links, and coloured targets that an instruction names one of."""

from walkgraph.graph.catalogue import Component, Param, port

_SCENE = "state: float[12]"
_SIDE = Param(type="integer", default=64, min=16, max=512, description="Pixels of a side.")

COMPONENTS: tuple[Component, ...] = (
    Component(
        name="reach.random_scene",
        former=("reach.scene",),
        category="World",
        description="Draws a scene from the run's seed: the arm, and two or three targets, one of the named colour.",
        inputs=(port("instruction", "text: str", description="names one colour: `reach the red ball`"),),
        outputs=(port("scene", _SCENE), port("joints", "state: float[2]", description="of the arm, in radians")),
        cost="launch",
        network="walkgraph.models.reach.operators:Scene",
        host=True,
    ),
    Component(
        name="reach.render",
        former=("reach.picture",),
        category="World",
        description="Draws a scene.",
        inputs=(port("scene", _SCENE),),
        outputs=(port("pixels", "pixels: float[3, h, w]", description="RGB in [-1, 1]"),),
        params={"side": _SIDE},
        cost="launch",
        network="walkgraph.models.reach.operators:Picture",
    ),
    Component(
        name="reach.move_arm",
        former=("reach.drive",),
        category="World",
        description="Moves the arm by the first actions of a chunk; it stops where it reaches the named target.",
        inputs=(
            port("scene", _SCENE),
            port("actions", "actions: float[t, a]", description="the joints' speeds, radians a second"),
            port("before", "scalar: int", optional=True, description="actions taken so far; 0 if absent"),
        ),
        outputs=(
            port("scene", _SCENE),
            port("joints", "state: float[2]", description="of the arm, in radians"),
            port("reached", "flag: bool"),
            port("taken", "scalar: int", description="actions taken so far, these included"),
        ),
        params={
            "apply": Param(type="integer", default=2, min=1, max=1024, description="Actions of the chunk at most."),
        },
        cost="launch",
        network="walkgraph.models.reach.operators:Drive",
        host=True,
    ),
)
