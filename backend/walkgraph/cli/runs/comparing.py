"""The differences of two runs, in words. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROWS = 10
"""The most differences listed."""
HEADERS = ("VALUE", "STEP", "ITERATION", "MAX ABS", "MAX REL")
RIGHT = (1, 3, 4)


def differ(found: Mapping[str, Any]) -> bool:
    """True if any compared value differs in any bit, or one run made a value that the other did not."""
    return bool(found["rows"]) or any(found["missing"].values()) or not all(o["equal"] for o in found["outputs"])


def verdict(found: Mapping[str, Any]) -> Iterator[str]:
    """A few lines: whether the runs are the same, and where they first differ."""
    compared, apart = found["compared"], found["compared"] - found["equal"]
    outputs = _outputs(found["outputs"])
    if not found["recorded"]:
        yield f"no values were recorded for either run: compared by outputs, {outputs}"
        return
    if not differ(found):
        yield f"identical: {compared} values, {outputs}"
        return
    yield f"different: {apart} of {compared} values, {outputs}"
    for side, name in (("a", "the first run"), ("b", "the second run")):
        if found["missing"][side]:
            yield f"{found['missing'][side]} values of {name} are missing: it did not make them, or they got lost"
    if found["first"] is not None:
        yield f"first difference: {_place(found['first'])}, {_apart(found['first'])}"
        yield from _sides(found["first"])


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The first differences, as rows of a table with HEADERS."""
    return [
        (
            f"{row['walk']} {row['source']}",
            str(row["step"]),
            _indices(row["iteration"]),
            _number(row["max_abs"]),
            _number(row["max_rel"]),
        )
        for row in found["rows"][:ROWS]
    ]


def _outputs(several: Sequence[Mapping[str, Any]]) -> str:
    if not several:
        return "the outputs of both runs are no longer kept"
    count = f"{len(several)} output{'s' if len(several) > 1 else ''}"
    apart = [f"`{output['name']}` {output['index']}" for output in several if not output["equal"]]
    if not apart:
        return f"{count}, all equal"
    more = f" and {len(apart) - 4} more" if len(apart) > 4 else ""
    return f"{count}, not equal: {', '.join(apart[:4])}{more}"


def _place(row: Mapping[str, Any]) -> str:
    iteration = f", iteration {_indices(row['iteration'])}" if row["iteration"] else ""
    return f"`{row['source']}` in `{row['walk']}`, step {row['step']}{iteration}"


def _apart(row: Mapping[str, Any]) -> str:
    if (row["shape_a"], row["dtype_a"]) != (row["shape_b"], row["dtype_b"]):
        return "shape or type differs"
    if row["max_abs"] is None:
        return "not comparable as numbers"
    if row["max_abs"] == 0:
        return "equal at the sampled positions"
    return f"{_number(row['max_abs'])} apart at most, relatively {_number(row['max_rel'])}"


def _sides(row: Mapping[str, Any]) -> Iterator[str]:
    for side in ("a", "b"):
        shape = " x ".join(map(str, row[f"shape_{side}"])) or "one"
        text = f"  {side}: rank {row[f'rank_{side}']}, {shape} {row[f'dtype_{side}']}"
        several = row[f"statistics_{side}"]
        if several is not None:
            text += f", {_number(several['low'])} to {_number(several['high'])}, mean {_number(several['mean'])}"
            text += f", deviation {_number(several['std'])}"
        yield text


def _indices(iteration: Sequence[int]) -> str:
    return ".".join(map(str, iteration))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
