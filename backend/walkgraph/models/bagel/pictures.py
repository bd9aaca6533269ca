"""What BAGEL's operators share: the config of a weight set, and how a picture is cut into cells."""

from walkgraph.abi.calls import Call, CallFailed


def picture_cells(call: Call, step: int, side: int) -> tuple[int, int, int]:
    """(rows, columns, cells) of a picture cut into squares of `step` pixels; at most `side` rows and columns."""
    _, height, width = call.inputs["pixels"].shape
    if height % step or width % step or not min(height, width) > 0 or max(height, width) > side * step:
        raise CallFailed(
            f"`{call.node}` takes pictures whose sides are multiples of {step} and at most {side * step} pixels, not "
            f"{width} by {height}; set `stride` and `max_side` of the node that reads the picture",
            "pixels",
        )
    return height // step, width // step, (height // step) * (width // step)
