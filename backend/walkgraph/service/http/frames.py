"""Carries bytes beside a JSON message instead of base64 inside it: in binary WebSocket frames after it, or in the
parts of a form.

    {"frames": 2, "inputs": {"camera": {"type": "image", "frame": 0},
                             "state": {"type": "state", "frame": 1, "dtype": "float32", "shape": [2]}}}

`frame` counts from 0; `frames`, at the top, is the number of binary frames that follow. In the request's body, `bytes`
objects replace the base64 texts. `plain` turns such a body back into JSON.
"""

from collections.abc import Sequence
from typing import Any, cast

import pybase64

from walkgraph.errors import InvalidInput
from walkgraph.service.http import limits

COUNT = "frames"


def announced(message: dict[str, Any]) -> int:
    """Number of frames that follow a message. Raises InvalidInput if it is not a valid number."""
    count = message.get(COUNT, 0)
    if type(count) is not int or not 0 <= count <= limits.WS_FRAMES:
        raise InvalidInput(f"this must be a whole number from 0 to {limits.WS_FRAMES}", f"/{COUNT}")
    return count


def placed(given: Any, frames: Sequence[bytes]) -> Any:
    """The body with each frame's bytes in the value that names it. Raises InvalidInput for a missing frame, and for a
    frame that no value names."""
    if not isinstance(given, dict):
        return given
    body = {key: value for key, value in cast(dict[str, Any], given).items() if key != COUNT}
    placing = _Placing(frames)
    if isinstance(body.get("inputs"), dict):
        named = cast(dict[str, Any], body["inputs"])
        body["inputs"] = {name: placing.values(value, f"/inputs/{name[:80]}") for name, value in named.items()}
    lonely = next((k for k in range(len(frames)) if k not in placing.used), None)
    if lonely is not None:
        raise InvalidInput(
            f'no value of the inputs names frame {lonely}; write `"frame": {lonely}` into one', "/inputs"
        )
    return body


class _Placing:
    def __init__(self, frames: Sequence[bytes]) -> None:
        self.used: set[int] = set()
        self._frames = frames

    def values(self, given: Any, at: str) -> Any:
        """Fills in the frames of one input, which is a value or a list of values."""
        if isinstance(given, list):
            return [self._value(value, f"{at}/{i}") for i, value in enumerate(cast(list[Any], given))]
        return self._value(given, at)

    def _value(self, given: Any, at: str) -> Any:
        value = cast(dict[str, Any], given) if isinstance(given, dict) else {}
        if isinstance(value.get("content"), list):  # a turn of a conversation
            return {**value, "content": self.values(value["content"], f"{at}/content")}
        if "frame" not in value:
            return cast(Any, given)
        number = value["frame"]
        if type(number) is not int or not 0 <= number < len(self._frames):
            raise InvalidInput(f"{len(self._frames)} frames came with this request, counted from 0", f"{at}/frame")
        key = "base64" if "dtype" in value or "shape" in value else "data"
        if key in value:
            raise InvalidInput(f"this is either in a frame or in `{key}`; remove one of them", f"{at}/{key}")
        self.used.add(number)
        return {**{k: v for k, v in value.items() if k != "frame"}, key: self._frames[number]}


def plain(value: Any) -> Any:
    """The body with its bytes encoded as base64."""
    if isinstance(value, bytes):
        return pybase64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: plain(child) for key, child in cast(dict[str, Any], value).items()}
    if isinstance(value, list) and any(isinstance(child, dict | bytes) for child in cast(list[Any], value)):
        return [plain(child) for child in cast(list[Any], value)]
    return cast(Any, value)
