"""Small deterministic components without weights, to learn the rules and to test and measure the runtime."""

from walkgraph.graph.catalogue import Append, Component, StateUse, port
from walkgraph.graph.declaring import Declarations, integer, kv_cache, number

_VALUE = "scalar: int"

_component = Declarations("synthetic", category="Testing", cost="launch")
_search = _component.in_module("search_operators")

COMPONENTS: tuple[Component, ...] = (
    _component(
        "synthetic.constant",
        "Outputs its parameter.",
        former=("synthetic.source",),
        deterministic=True,
        outputs=(port("value", _VALUE),),
        params={"value": integer(default=0)},
    ),
    _component(
        "synthetic.random_integer",
        "Draws an integer from 0 to `below` - 1; each draw advances its random state.",
        former=("synthetic.draw",),
        outputs=(port("value", _VALUE),),
        params={"below": integer(default=1000, min=1, max=2**31 - 1)},
        states=(StateUse(slot="rng", kind="rng"),),
    ),
    _component(
        "synthetic.range",
        "Outputs `start`, `start` + 1 and so on, `n` numbers: slices for a loop.",
        deterministic=True,
        inputs=(port("start", _VALUE, optional=True, description="0 if absent"),),
        outputs=(port("values", "scalar: int[n]"),),
        params={"n": integer(default=4, min=1, max=4096)},
    ),
    _component(
        "synthetic.add",
        "Adds its inputs; an absent one counts as 0.",
        deterministic=True,
        inputs=(port("a", _VALUE, optional=True), port("b", _VALUE, optional=True)),
        outputs=(port("sum", _VALUE),),
    ),
    _component(
        "synthetic.sum",
        "Adds up stacked values.",
        former=("synthetic.total",),
        deterministic=True,
        inputs=(port("values", "scalar: int[...]"),),
        outputs=(port("sum", _VALUE),),
    ),
    _component(
        "synthetic.compare",
        "Sets its flag when the value is `at` or more, to end a loop.",
        deterministic=True,
        inputs=(port("value", _VALUE),),
        outputs=(port("value", _VALUE, description="unchanged"), port("reached", "flag: bool")),
        params={"at": integer(default=2**31 - 1)},
    ),
    _component(
        "synthetic.counter",
        "Counts its calls in a state and adds one to the token; stops from the count `stop_at` on.",
        inputs=(port("token", "tokens: int[1]", optional=True, description="0 if absent"),),
        outputs=(port("token", "tokens: int[1]"), port("stop", "flag: bool")),
        params={"stop_at": integer(default=2**31 - 1, min=1)},
        states=(StateUse(slot="count", kind="tensor"),),
    ),
    _component(
        "synthetic.tokens",
        "Outputs the tokens `first`, `first` + 1 and so on, `n` of them.",
        deterministic=True,
        inputs=(port("first", _VALUE, optional=True, description="0 if absent"),),
        outputs=(port("ids", "tokens: int[n]"),),
        params={"n": integer(default=1, min=1, max=4096)},
    ),
    _component(
        "synthetic.attend",
        "A miniature cache: the next token is the sum of all kept ones plus the position, modulo 997.",
        inputs=(
            port("ids", "tokens: int[n]", optional=True, description="appended, position + n"),
            port("token", "tokens: int[1]", optional=True, description="appended, position + 1"),
            port("block", "tokens: int[n]", optional=True, description="appended as one block, position + 1"),
            port("scratch", "tokens: int[n]", optional=True, description="attended but not kept"),
        ),
        outputs=(port("token", "tokens: int[1]"), port("stop", "flag: bool")),
        params={"stop_token": integer("Stop when this is the next token; -1 never stops.", default=-1)},
        states=(
            kv_cache(
                "ids",
                "token",
                Append(port="block", positions="per_block"),
                Append(port="scratch", positions="per_block", scratch=True),
                token_bytes=16,
            ),
        ),
        cost="memory",
    ),
    _component(
        "synthetic.delay",
        "Passes its value on after `work` products of two square matrices of side `side`.",
        inputs=(port("value", _VALUE, optional=True, description="0 if absent"),),
        outputs=(port("value", _VALUE),),
        params={
            "work": integer(default=1, min=0, max=1_000_000),
            "side": integer(default=128, min=1, max=16384),
        },
        cost="compute",
    ),
    _component(
        "synthetic.fail",
        "Passes its value on, and fails the run when that is `at`.",
        inputs=(port("value", _VALUE),),
        outputs=(port("value", _VALUE),),
        params={"at": integer(default=-1)},
    ),
    _component(
        "synthetic.nan",
        "Turns its value into one float, and into NaN when the value is `at`.",
        inputs=(port("value", _VALUE),),
        outputs=(port("items", "tensor: float[1]"),),
        params={"at": integer(default=-1)},
    ),
    _component(
        "synthetic.allocate",
        "Allocates memory and frees it. If there is too little memory, only this run fails.",
        inputs=(port("value", _VALUE, optional=True, description="0 if absent"),),
        outputs=(port("value", _VALUE),),
        params={"mebibytes": integer(default=1, min=0, max=2**31 - 1)},
        cost="memory",
    ),
    _component(
        "synthetic.tensor",
        "Outputs a tensor of `n` numbers, all equal to its value.",
        deterministic=True,
        inputs=(port("value", _VALUE, optional=True, description="0 if absent"),),
        outputs=(port("items", "tensor: float[n]"),),
        params={"n": integer(default=16, min=1, max=2**30)},
        cost="memory",
    ),
    _component(
        "synthetic.noop",
        "Adds one to its token: an empty step on the device; stops from the token `stop_at` on.",
        inputs=(port("token", "tokens: int[1]"),),
        outputs=(port("token", "tokens: int[1]"), port("stop", "flag: bool")),
        params={"stop_at": integer(default=2**31 - 1)},
        resident=True,
    ),
    _component(
        "synthetic.euler",
        "Takes one Euler step towards the number `time`; a miniature flow.",
        inputs=(port("items", "tensor: float[n]"),),
        outputs=(port("items", "tensor: float[n]"),),
        params={
            "time": number("Flow time of this step.", default=0.0),
            "step": number("Step length.", default=0.1),
        },
        resident=True,
    ),
    _search(
        "synthetic.perturb",
        "Draws random paths around a given one: each step is shifted by up to half of `reach`.",
        former=("synthetic.spread",),
        inputs=(port("way", "tensor: float[n]"),),
        outputs=(port("ways", "tensor: float[n, w]"),),
        params={
            "ways": integer(default=4, min=1, max=1024),
            "reach": number("Width of the range of random shifts.", default=1.0),
        },
        resident=True,
    ),
    _search(
        "synthetic.attend_step",
        "A miniature cache with one sequence per number: appends each number, and outputs the sum of its "
        "sequence plus the position.",
        inputs=(
            port("items", "tensor: float[w]"),
            port("before", "tensor: float[w]", optional=True, description="a quarter of it is added first"),
        ),
        outputs=(port("items", "tensor: float[w]"),),
        states=(kv_cache("items", token_bytes=16),),
        cost="memory",
        resident=True,
    ),
    _search(
        "synthetic.choose_nearest",
        "Chooses the path whose summed marks are nearest to `goal`.",
        former=("synthetic.choose",),
        inputs=(port("ways", "tensor: float[n, w]"), port("marks", "tensor: float[m, w]")),
        outputs=(
            port("way", "tensor: float[n]"),
            port("far", "tensor: float[1]", description="its distance from `goal`"),
        ),
        params={"goal": number(default=0.0)},
        resident=True,
    ),
    _component(
        "synthetic.chunk_sum",
        "Adds up the items of a chunk, including its context; a chunk without items gives 0.",
        inputs=(port("items", "tensor: float[n]", optional=True),),
        outputs=(port("sum", "tensor: float[1]"),),
        cost="memory",
    ),
)
