"""The page of expressions in conditions, counts and parameters; the editor's fields link here."""

from __future__ import annotations

import streamlit as st

from walkgraph.graph.language.expressions import evaluate, parse

NAMES = {
    "steps": "a parameter of the task that runs",
    "@loop.index": "the index of the innermost loop around the node, from 0",
    "@loop.tokens": "the index of the loop named `tokens`",
    "'text', true, 0.5": "themselves",
}
FUNCTIONS = {
    "min(4, 2, 3)": "the least of 2 to 16 numbers",
    "max(4, 2, 3)": "the greatest of 2 to 16 numbers",
    "abs(-3)": "the number without its sign",
    "ceil(2.1)": "rounded up",
    "floor(2.9)": "rounded down",
    "round(2.5)": "to the nearest whole number, half to even",
    "float32(0.1)": "the nearest number of single precision",
    "flow_time(1, 5, 3.0)": "the i-th of `steps` timesteps from 1 (noise) to 0 (picture), shifted by `shift`: "
    "`flow_time(i, steps, shift)`",
}
OPERATORS = {
    "false or 3 > 2": "one of them holds",
    "1 < 2 and 2 < 3": "both hold",
    "not true": "it doesn't hold",
    "0 < 3 <= 3": "comparisons, also `==` and `!=`; they chain",
    "7 - 2": "sum and difference",
    "7 // 2": "`*`, `/`, division rounded down, and `%`, the remainder",
}


def page() -> None:
    st.title("Expressions", anchor=False)
    st.caption(
        "Conditions, counts, and parameters that begin with `=` are computed from the parameters of the task and the "
        "indices of loops, never from values that flow."
    )
    st.subheader("Names", anchor=False)
    st.markdown(_table(("written", "is"), [(f"`{name}`", about) for name, about in NAMES.items()]))
    for title, examples in (("Functions", FUNCTIONS), ("Operators", OPERATORS)):
        st.subheader(title, anchor=False)
        rows = [(f"`{text}`", f"`{_value(text)}`", about) for text, about in examples.items()]
        st.markdown(_table(("example", "gives", "is"), rows))
    st.caption("Expressions have at most 400 characters. In a field, Tab completes a name that you have begun.")


def _value(text: str) -> str:
    value = evaluate(parse(text), {})
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))
