"""Random well-formed graphs for round trips; they need not mean anything."""

from typing import Any

from hypothesis import strategies as st

NAMES = st.from_regex(r"\A[A-Za-z][A-Za-z0-9_\-]{0,6}\Z")
OWNERS = st.one_of(NAMES, st.sampled_from(["@in", "@loop", "@stream"]))
REFERENCES = st.builds("{}.{}".format, OWNERS, NAMES)
EXPRESSIONS = st.sampled_from(["steps - 1", "3", "a > 1 and @loop.index < 2", "min(a, b)", "'x' == mode", "é"])
LITERALS = st.one_of(
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text)),
)
TEXTS = st.sampled_from(["", "Read", 'quotes " and \\ slashes', "naïve\nlines", "'single'", "漢字 🎈"])


def record(required: dict[str, Any], optional: dict[str, Any]) -> Any:
    return st.fixed_dictionaries(required, optional=optional)


def _items(inner: Any) -> Any:
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        body,
        record({"parallel": body}, {"when": EXPRESSIONS}),
        record({"sequence": body}, {"when": EXPRESSIONS}),
        record(
            {"loop": NAMES, "times": EXPRESSIONS, "body": body},
            {"until": REFERENCES, "drop_last": st.booleans(), "when": EXPRESSIONS},
        ),
        record(
            {"map": REFERENCES, "bound": EXPRESSIONS, "body": body},
            {"width": EXPRESSIONS, "as": NAMES, "when": EXPRESSIONS},
        ),
    )


ITEMS = st.recursive(
    st.one_of(
        NAMES,
        record({"use": NAMES}, {"as": NAMES, "when": EXPRESSIONS}),
        record({"fork": NAMES, "into": NAMES}, {"when": EXPRESSIONS}),
    ),
    _items,
    max_leaves=8,
)
TARGETS = st.builds("{}.{}".format, st.one_of(NAMES, st.just("@out")), NAMES)
EDGES = st.one_of(
    st.tuples(REFERENCES, TARGETS).map(list),
    record({"from": REFERENCES, "to": TARGETS}, {"each": st.booleans(), "collect": st.booleans()}),
)
RESULTS_OF_WALKS = st.dictionaries(
    NAMES, st.one_of(REFERENCES, record({"from": REFERENCES}, {"collect": st.booleans()})), max_size=2
)
WALKS = record(
    {"body": st.lists(ITEMS, max_size=4)},
    {
        "label": TEXTS,
        "inputs": st.dictionaries(NAMES, st.sampled_from(["text", "tokens: int[n]"]), max_size=3),
        "edges": st.lists(EDGES, max_size=4),
        "results": RESULTS_OF_WALKS,
    },
)
CHUNKS = st.one_of(
    record({"policy": st.just("fixed"), "size": st.integers(1, 9)}, {"continue_after_done": st.booleans()}),
    record({"policy": st.just("sliding"), "window": st.integers(1, 9), "stride": st.integers(1, 9)}, {}),
    record(
        {"policy": st.just("left_context"), "chunk": st.integers(1, 9), "context": st.integers(0, 9)},
        {"first": st.integers(1, 9)},
    ),
    record({"policy": st.just("whole")}, {}),
)
STREAMS = record(
    {"name": NAMES, "from": REFERENCES, "walks": st.lists(NAMES, min_size=1, max_size=2), "chunks": CHUNKS},
    {"credits": st.integers(1, 4096)},
)
WALK_STEPS = record(
    {"walk": NAMES},
    {
        "as": NAMES,
        "with": st.dictionaries(NAMES, LITERALS, max_size=2),
        "when": EXPRESSIONS,
        "per": st.just("chunk"),
    },
)
RESULTS = st.builds("{}.{}".format, NAMES, NAMES)
STEPS = st.recursive(
    st.one_of(WALK_STEPS, record({"first": st.lists(WALK_STEPS, min_size=1, max_size=2)}, {})),
    lambda inner: st.one_of(
        record({"for": st.just("parts")}, {kind: st.lists(inner, max_size=2) for kind in ("text", "image")}),
        record({"for": st.just("turns")}, {role: st.lists(inner, max_size=2) for role in ("user", "tool")}),
        record(
            {"loop": st.lists(inner, min_size=1, max_size=2), "times": EXPRESSIONS},
            {"until": RESULTS, "start": st.dictionaries(RESULTS, LITERALS, max_size=2)},
        ),
    ),
    max_leaves=4,
)
PARAMS = record(
    {"type": st.sampled_from(["integer", "number", "boolean", "string"])},
    {
        "default": LITERALS,
        "min": st.integers(-5, 5),
        "max": st.floats(-5, 5),
        "choices": st.lists(LITERALS, max_size=2),
        "description": TEXTS,
    },
)
TASKS = record(
    {
        "outputs": st.lists(NAMES, max_size=2),
        "steps": st.one_of(
            st.lists(STEPS, max_size=3), st.dictionaries(NAMES, st.lists(STEPS, max_size=2), max_size=2)
        ),
    },
    {
        "label": TEXTS,
        "inputs": st.dictionaries(
            NAMES,
            record(
                {"modality": st.sampled_from(["text", "image", "messages"])},
                {"many": st.booleans(), "optional": st.booleans(), "description": TEXTS},
            ),
            max_size=2,
        ),
        "params": st.dictionaries(NAMES, PARAMS, max_size=2),
        "session": record({}, {"queue": st.sampled_from(["fifo", "latest"]), "max_bytes": st.integers(1, 9)}),
    },
)
JSON = st.recursive(
    st.one_of(st.none(), LITERALS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(TEXTS, inner, max_size=2)),
    max_leaves=5,
)
WEIGHTS = st.dictionaries(
    NAMES,
    record({"family": NAMES, "source": st.sampled_from(["starter:shapes", "checkpoint:x.y", "random:tiny:7"])}, {}),
    max_size=2,
)
STATES = st.dictionaries(
    NAMES,
    record(
        {"kind": st.sampled_from(["paged_kv", "tensor", "rng"])},
        {
            "scope": st.sampled_from(["session", "run", "walk", "iteration"]),
            "width": EXPRESSIONS,
            "capacity": EXPRESSIONS,
        },
    ),
    max_size=2,
)
NODES = st.dictionaries(
    NAMES,
    record(
        {
            "component": st.one_of(
                st.from_regex(r"\A[a-z0-9_]{1,4}\.[a-z0-9_]{1,4}\Z"), st.builds("blueprint.{}".format, NAMES)
            )
        },
        {
            "weights": NAMES,
            "states": st.dictionaries(NAMES, NAMES, max_size=2),
            "params": st.dictionaries(NAMES, LITERALS, max_size=2),
        },
    ),
    max_size=3,
)
BLUEPRINTS = record(
    {"body": st.lists(ITEMS, max_size=3)},
    {
        "description": TEXTS,
        "origin": record({"name": NAMES, "version": st.just("0" * 32)}, {}),
        "inputs": st.dictionaries(NAMES, st.sampled_from(["text", "tokens: int[n]"]), max_size=2),
        "outputs": RESULTS_OF_WALKS,
        "params": st.dictionaries(NAMES, PARAMS, max_size=2),
        "weights": WEIGHTS,
        "states": STATES,
        "nodes": NODES,
        "edges": st.lists(EDGES, max_size=3),
        "layout": st.dictionaries(TEXTS, JSON, max_size=2),
    },
)
DOCUMENTS = record(
    {"name": NAMES},
    {
        "format": st.just("walkgraph/graph@1"),
        "description": TEXTS,
        "weights": WEIGHTS,
        "states": STATES,
        "nodes": NODES,
        "walks": st.dictionaries(NAMES, WALKS, max_size=2),
        "streams": st.lists(STREAMS, max_size=2),
        "tasks": st.dictionaries(NAMES, TASKS, max_size=2),
        "blueprints": st.dictionaries(NAMES, BLUEPRINTS, max_size=2),
        "layout": st.dictionaries(TEXTS, JSON, max_size=2),
    },
)
