"""Values that pass or don't, are chosen, collected into lists, or end a run."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, choice, integer, number

_component = Declarations("control", category="Control", cost="launch", deterministic=True)
_limits = Declarations("control", module=None, category="Control", cost="launch", host=True, served=True)


def _type(description: str, default: str = "text") -> Param:
    return Param(type="string", default=default, description=description, gives="type")


COMPONENTS: tuple[Component, ...] = (
    _component(
        "control.gate",
        "Passes a value on if a flag is true; otherwise there is none.",
        inputs=(port("value", "text", of="type"), port("flag", "flag")),
        outputs=(port("value", "text", of="type", optional=True),),
        params={"type": _type("Type of the value.")},
        examples=(
            Example(inputs={"value": "hello", "flag": True}, outputs={"value": "hello"}),
            Example(inputs={"value": "hello", "flag": False}, note="There is no value."),
        ),
    ),
    _component(
        "control.select",
        "Passes one of two values on, by a flag.",
        inputs=(
            port("flag", "flag"),
            port("if_true", "text", of="type", optional=True),
            port("if_false", "text", of="type", optional=True),
        ),
        outputs=(port("value", "text", of="type", description="the run fails if the chosen one has no value"),),
        params={"type": _type("Type of the values.")},
        examples=(
            Example(inputs={"flag": False, "if_true": "yes", "if_false": "no"}, outputs={"value": "no"}),
            Example(params={"type": "scalar"}, inputs={"flag": True, "if_true": 3}, outputs={"value": 3}),
        ),
    ),
    _component(
        "control.collect",
        "Makes a list of several values, in the order of its ports; those that are absent are left out.",
        inputs=(port("value", "text", of="ports", like="type", optional=True),),
        outputs=(port("items", "list of text", of="type"),),
        params={
            "ports": Param(
                type="string", default="a, b", gives="ports", form="alike", description="The values: `a, b, c`."
            ),
            "type": _type("Type of the values: `image` gives a `list of image`."),
        },
        examples=(
            Example(inputs={"a": "red", "b": "blue"}, outputs={"items": ["red", "blue"]}),
            Example(
                params={"ports": "first, second", "type": "scalar"},
                inputs={"second": 7},
                outputs={"items": [7]},
                note="`first` is absent.",
            ),
        ),
    ),
    _component(
        "control.item",
        "Takes an item out of a list.",
        inputs=(
            port("items", "list of text", of="type"),
            port("index", "scalar: int", optional=True, description="instead of the parameter"),
        ),
        outputs=(port("item", "text", of="type"),),
        params={
            "type": _type("Type of an item."),
            "index": integer("0 is the first item, -1 the last.", default=0),
        },
        examples=(Example(params={"index": -1}, inputs={"items": ["a", "b", "c"]}, outputs={"item": "c"}),),
    ),
    _component(
        "control.count",
        "Counts the items of a list.",
        inputs=(port("items", "list of text", of="type"),),
        outputs=(port("count", "scalar: int"),),
        params={"type": _type("Type of an item.")},
        examples=(Example(inputs={"items": ["a", "b", "c"]}, outputs={"count": 3}),),
    ),
    _limits(
        "control.rate_limit",
        "Lets at most so many values pass within a time; the others wait.",
        inputs=(port("value", "text", of="type"),),
        outputs=(port("value", "text", of="type"),),
        params={
            "type": _type("Type of the values."),
            "count": integer("Values that may pass within `window`, of all runs.", default=1, min=1, max=10000),
            "window": number("Seconds.", default=1.0, min=0.01, max=3600),
            "wait": number(
                "The longest wait in seconds; a run whose value would wait longer fails.", default=60.0, min=0, max=300
            ),
        },
        examples=(Example(inputs={"value": "hello"}, outputs={"value": "hello"}, runs=False),),
    ),
    _component(
        "control.fail",
        "Ends the run with a message if a flag is true; otherwise passes its value on.",
        inputs=(
            port("value", "text", of="type", optional=True),
            port("flag", "flag", optional=True, description="true if absent"),
            port("message", "text", optional=True, description="instead of the parameter"),
        ),
        outputs=(port("value", "text", of="type", optional=True),),
        params={
            "type": _type("Type of the value."),
            "message": Param(type="string", default="The run was ended.", description="The caller sees it."),
            "code": choice(
                ("invalid_input", "node_error"),
                "`invalid_input`: the request is at fault. `node_error`: the graph is.",
                default="invalid_input",
            ),
        },
        examples=(
            Example(
                params={"message": "Write a question."},
                inputs={"value": "Why?", "flag": False},
                outputs={"value": "Why?"},
                note="The flag is false, so the run goes on.",
            ),
        ),
    ),
)
