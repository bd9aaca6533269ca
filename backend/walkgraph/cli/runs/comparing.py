"""What two runs differ by, in words. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ROWS = 10
"""That are listed."""
HEADERS = ("VALUE", "STEP", "ITERATION", "MAX ABS", "MAX REL")
RIGHT = (1, 3, 4)


def differ(found: Mapping[str, Any]) -> bool:
    """Whether anything that was compared isn't the same to the last bit, or one run made what the other did not."""
    return bool(found["rows"]) or any(found["missing"].values()) or not all(o["equal"] for o in found["outputs"])


def verdict(found: Mapping[str, Any]) -> Iterator[str]:
    """In a few lines: whether they are the same, and where they first are not."""
    compared, apart = found["compared"], found["compared"] - found["equal"]
    outputs = _outputs(found["outputs"])
    if not found["recorded"]:
        yield f"neither run told its values: compared by outputs, {outputs}"
        return
    if not differ(found):
        yield f"identical: {compared} values, {outputs}"
        return
    yield f"different: {apart} of {compared} values, {outputs}"
    for side, name in (("a", "the first run"), ("b", "the second run")):
        if found["missing"][side]:
            yield f"{found['missing'][side]} values are missing of {name}: it did not make them, or they got lost"
    if found["first"] is not None:
        yield f"first difference: {_place(found['first'])}, {_apart(found['first'])}"
        yield from _sides(found["first"])


def rows(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The first that differ, for a table of HEADERS."""
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


def _outputs(told: Sequence[Mapping[str, Any]]) -> str:
    if not told:
        return "no outputs are kept of both"
    count = f"{len(told)} output{'s' if len(told) > 1 else ''}"
    apart = [f"`{output['name']}` {output['index']}" for output in told if not output["equal"]]
    if not apart:
        return f"{count}, all equal"
    more = f" and {len(apart) - 4} more" if len(apart) > 4 else ""
    return f"{count}, not equal: {', '.join(apart[:4])}{more}"


def _place(row: Mapping[str, Any]) -> str:
    iteration = f", iteration {_indices(row['iteration'])}" if row["iteration"] else ""
    return f"`{row['source']}` in `{row['walk']}`, step {row['step']}{iteration}"


def _apart(row: Mapping[str, Any]) -> str:
    if (row["shape_a"], row["dtype_a"]) != (row["shape_b"], row["dtype_b"]):
        return "of another shape or type"
    if row["max_abs"] is None:
        return "not to be compared by numbers"
    if row["max_abs"] == 0:
        return "equal at the places that were looked at"
    return f"{_number(row['max_abs'])} apart at most, relatively {_number(row['max_rel'])}"


def _sides(row: Mapping[str, Any]) -> Iterator[str]:
    for side in ("a", "b"):
        shape = " x ".join(map(str, row[f"shape_{side}"])) or "one"
        text = f"  {side}: rank {row[f'rank_{side}']}, {shape} {row[f'dtype_{side}']}"
        told = row[f"statistics_{side}"]
        if told is not None:
            text += f", {_number(told['low'])} to {_number(told['high'])}, mean {_number(told['mean'])}"
            text += f", deviation {_number(told['std'])}"
        yield text


def _indices(iteration: Sequence[int]) -> str:
    return ".".join(map(str, iteration))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
