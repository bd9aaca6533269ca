"""Constants, arithmetic, comparisons, shapes and statistics of scalars and tensors."""

from walkgraph.graph.catalogue import Component, Example, Param, port
from walkgraph.graph.declaring import Declarations, choice, integer, literal, number

OPERATIONS = (
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "power",
    "minimum",
    "maximum",
)
COMPARISONS = ("less", "at_most", "equal", "not_equal", "at_least", "more")
ROUNDINGS = ("truncate", "nearest", "down", "up")

_component = Declarations("numbers", category="Numbers", cost="launch", deterministic=True)
_shapes = _component.in_module("shape_operators")


def _type(description: str, default: str = "tensor") -> Param:
    return Param(type="string", default=default, description=description, gives="type")


def _text(description: str, default: str) -> Param:
    return Param(type="string", default=default, description=description)


COMPONENTS: tuple[Component, ...] = (
    _component(
        "numbers.constant",
        "Outputs a value that is written in the graph.",
        outputs=(port("value", "scalar", of="type"),),
        params={
            "type": Param(
                type="string",
                default="scalar",
                gives="type",
                description="`scalar`, `flag`, `text`, a list of these, or a type of tensors.",
            ),
            "value": literal(_text("The value as JSON, a text as it is. It must be a literal.", "0"), "constant"),
        },
        examples=(
            Example(params={"value": "0.5"}, outputs={"value": 0.5}),
            Example(params={"type": "text", "value": "a red circle"}, outputs={"value": "a red circle"}),
            Example(params={"type": "list of text", "value": '["a", "b"]'}, outputs={"value": ["a", "b"]}),
            Example(params={"type": "tensor: float[2]", "value": "[1, 2]"}, outputs={"value": [1.0, 2.0]}),
        ),
    ),
    _component(
        "numbers.value",
        "Outputs a number that can be computed from the task's parameters and the index of a loop.",
        outputs=(port("value", "scalar"),),
        params={"value": number("For example `=2 * steps`.", default=0.0)},
        examples=(Example(params={"value": 2.5}, outputs={"value": 2.5}),),
    ),
    _component(
        "numbers.arithmetic",
        "Computes with two numbers, two tensors, or a tensor and a number.",
        inputs=(
            port("a", "scalar", of="type"),
            port("b", "scalar", of="b_type", optional=True, description="instead of the parameter `number`"),
        ),
        outputs=(port("result", "scalar", of="type", description="division by zero ends the run"),),
        params={
            "operation": choice(OPERATIONS, "What becomes of `a` and `b`.", default="add"),
            "number": number("Taken where nothing enters `b`.", default=0.0),
            "type": _type("Type of `a` and of the result.", "scalar"),
            "b_type": _type("Type of `b`.", "scalar"),
        },
        examples=(
            Example(params={"operation": "multiply"}, inputs={"a": 6, "b": 7}, outputs={"result": 42}),
            Example(
                params={"operation": "divide", "number": 2.0, "type": "tensor: float[n]"},
                inputs={"a": [1.0, 2.0, 4.0]},
                outputs={"result": [0.5, 1.0, 2.0]},
            ),
        ),
    ),
    _component(
        "numbers.compare",
        "Compares two numbers.",
        inputs=(
            port("a", "scalar"),
            port("b", "scalar", optional=True, description="instead of the parameter `number`"),
        ),
        outputs=(port("flag", "flag: bool"),),
        params={
            "comparison": choice(COMPARISONS, "True if `a` is this compared with `b`.", default="at_least"),
            "number": number("Taken where nothing enters `b`.", default=0.0),
        },
        examples=(
            Example(params={"comparison": "less"}, inputs={"a": 3, "b": 5}, outputs={"flag": True}),
            Example(params={"comparison": "equal", "number": 4.0}, inputs={"a": 3}, outputs={"flag": False}),
        ),
    ),
    _component(
        "numbers.cast",
        "Turns numbers into another type: whole numbers, floats, flags, text.",
        inputs=(port("value", "tensor", of="type"),),
        outputs=(port("value", "tensor", of="to"),),
        params={
            "type": _type("Type of the input.", "scalar"),
            "to": _type("Type of the output, such as `tensor: int`.", "scalar: int"),
            "rounding": choice(ROUNDINGS, "How a float becomes a whole number.", default="truncate"),
        },
        examples=(
            Example(params={"rounding": "nearest"}, inputs={"value": 2.7}, outputs={"value": 3}),
            Example(params={"to": "text"}, inputs={"value": 0.5}, outputs={"value": "0.5"}),
            Example(
                params={"type": "tensor: int", "to": "tensor: float"},
                inputs={"value": [1, 2]},
                outputs={"value": [1.0, 2.0]},
            ),
        ),
    ),
    _component(
        "numbers.statistics",
        "Mean, smallest, largest, standard deviation and histogram of numbers, and where the extremes are.",
        inputs=(port("values", "tensor", of="type"),),
        outputs=(
            port("mean", "scalar: float"),
            port("min", "scalar: float"),
            port("max", "scalar: float"),
            port("min_at", "scalar: int", description="place of the first smallest number, from 0, row by row"),
            port("max_at", "scalar: int", description="place of the first largest number"),
            port("std", "scalar: float", description="of all numbers, not of a sample"),
            port("histogram", "tensor: int[n]", description="counts in bins of equal width from `min` to `max`"),
        ),
        params={
            "type": _type("Type of the numbers."),
            "bins": integer("Bins of the histogram.", default=16, min=1, max=1024),
        },
        examples=(
            Example(
                params={"bins": 2},
                inputs={"values": [1, 2, 3, 6]},
                outputs={
                    "mean": 3.0,
                    "min": 1.0,
                    "max": 6.0,
                    "min_at": 0,
                    "max_at": 3,
                    "std": 1.8708,
                    "histogram": [3, 1],
                },
            ),
        ),
    ),
    _component(
        "numbers.random",
        "Draws random numbers by the run's seed: the same seed gives the same numbers on any machine.",
        deterministic=False,
        outputs=(port("value", "scalar", of="type"),),
        params={
            "distribution": choice(("uniform", "normal", "integer"), default="uniform"),
            "low": number("Smallest number; not for `normal`.", default=0.0, min=-1e9, max=1e9),
            "high": number(
                "Largest number, which `integer` includes and `uniform` doesn't; not for `normal`.",
                default=1.0,
                min=-1e9,
                max=1e9,
            ),
            "mean": number("Of `normal`.", default=0.0, min=-1e9, max=1e9),
            "std": number("Standard deviation of `normal`.", default=1.0, min=0, max=1e9),
            "shape": literal(
                _text("Sizes, such as `3, 64, 64`; empty for one number. It must be a literal.", ""), "sizes"
            ),
            "type": _type("Type of the numbers; `scalar` without a shape.", "scalar"),
        },
        examples=(
            Example(params={"distribution": "integer", "low": 1.0, "high": 6.0}, outputs={"value": 2}),
            Example(
                params={"shape": "3", "type": "tensor: float[3]"},
                outputs={"value": [0.1876, 0.4030, 0.2079]},
                note="Another seed gives others.",
            ),
        ),
    ),
    _shapes(
        "numbers.shape",
        "The sizes of a tensor.",
        inputs=(port("value", "tensor", of="type"),),
        outputs=(
            port("sizes", "tensor: int[n]", description="of all axes"),
            port("size", "scalar: int", description="of the axis `axis`"),
            port("count", "scalar: int", description="how many numbers there are"),
        ),
        params={
            "type": _type("Type of the tensor."),
            "axis": integer("0 is the first axis, -1 the last.", default=0, min=-8, max=7),
        },
        examples=(Example(inputs={"value": [[1, 2, 3], [4, 5, 6]]}, outputs={"sizes": [2, 3], "size": 2, "count": 6}),),
    ),
    _shapes(
        "numbers.select",
        "Takes one slice of a tensor along its first axis.",
        inputs=(
            port("values", "tensor", of="type"),
            port("index", "scalar: int", optional=True, description="instead of the parameter"),
        ),
        outputs=(port("value", "tensor", of="to"),),
        params={
            "type": _type("Type of the tensor."),
            "to": _type("Type of a slice: `scalar` for a number."),
            "index": integer("0 is the first slice, -1 the last.", default=0),
        },
        examples=(
            Example(params={"index": -1}, inputs={"values": [[1, 2], [3, 4]]}, outputs={"value": [3, 4]}),
            Example(params={"to": "scalar"}, inputs={"values": [5, 6, 7], "index": 1}, outputs={"value": 6}),
        ),
    ),
    _shapes(
        "numbers.stack",
        "Puts tensors of one shape together, along a new axis or end to end along one that they have.",
        inputs=(port("value", "tensor", of="ports", optional=True),),
        outputs=(port("values", "tensor", of="type"),),
        params={
            "ports": Param(type="string", default="a, b", gives="ports", description="The tensors: `a, b: scalar`."),
            "how": choice(("stack", "concat"), "`concat`: sizes may differ along the axis.", default="stack"),
            "axis": integer("0 is the first axis, -1 the last.", default=0, min=-8, max=7),
            "type": _type("Type of the output."),
        },
        examples=(
            Example(inputs={"a": [1, 2], "b": [3, 4]}, outputs={"values": [[1, 2], [3, 4]]}),
            Example(params={"how": "concat"}, inputs={"a": [1, 2], "b": [3]}, outputs={"values": [1, 2, 3]}),
        ),
    ),
    _shapes(
        "numbers.unstack",
        "Takes a tensor apart into a list of its slices.",
        inputs=(port("values", "tensor", of="type"),),
        outputs=(port("items", "list of tensor", of="to"),),
        params={
            "type": _type("Type of the tensor."),
            "to": _type("Type of a slice; a `list of` these is the output."),
            "axis": integer("0 is the first axis, -1 the last.", default=0, min=-8, max=7),
        },
        examples=(Example(inputs={"values": [[1, 2], [3, 4]]}, outputs={"items": [[1, 2], [3, 4]]}),),
    ),
    _shapes(
        "numbers.reshape",
        "Gives a tensor other sizes, with the same numbers in the same order.",
        inputs=(port("value", "tensor", of="type"),),
        outputs=(port("value", "tensor", of="to"),),
        params={
            "type": _type("Type of the tensor."),
            "to": _type("Type of the output."),
            "shape": literal(
                _text("Sizes, such as `2, -1`; one may be -1, what is left. It must be a literal.", "-1"), "shape"
            ),
        },
        examples=(
            Example(params={"shape": "2, -1"}, inputs={"value": [1, 2, 3, 4]}, outputs={"value": [[1, 2], [3, 4]]}),
        ),
    ),
)
