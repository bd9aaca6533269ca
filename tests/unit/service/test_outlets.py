"""Large bytes are spliced into JSON and msgpack; next to values that are encoded whole."""

from __future__ import annotations

import base64
import random
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors import torch as stored

from walkgraph.service.http import pieces
from walkgraph.service.http.pieces import ENCODED_BYTES, Base64
from walkgraph.service.values import outlets, tensors, values
from walkgraph.service.values.outlets import LARGE_BYTES, Frames, Spliced
from walkgraph.wire import messages as m
from walkgraph.wire.tensors import ITEM_BYTES

SIZES = (1, 100, LARGE_BYTES - 1, LARGE_BYTES, LARGE_BYTES + 1, ENCODED_BYTES, ENCODED_BYTES + 2, 1_000_003)


@pytest.mark.parametrize("size", SIZES)
def test_base64_in_windows_is_that_of_the_whole(size: int) -> None:
    data = random.Random(size).randbytes(size)
    for given in (data, memoryview(data)):
        assert b"".join(Base64(given).encoded()) == base64.b64encode(data)
        assert len(Base64(given)) == len(base64.b64encode(data))


def many(seed: int) -> m.Many:
    drawn = random.Random(seed)
    items: list[m.Value] = [m.Small(value='"quoted"')]
    for size in drawn.choices(SIZES, k=6):
        items.append(m.Blob(data=drawn.randbytes(size)))
        items.append(m.InlineTensor(dtype="uint8", shape=(size,), data=drawn.randbytes(size)))
    drawn.shuffle(items)
    return m.Many(items=(*items, m.Named(items={"a": items[0], "b": items[-1]})))


@pytest.mark.parametrize("seed", range(4))
def test_spliced_json_is_the_json_of_the_whole(seed: int) -> None:
    value, outlet = many(seed), Spliced(outlets.JSON)
    written = b"".join(pieces.windows(outlet.pieces({"value": values.write(value, "", outlet)})))
    assert written == msgspec.json.encode({"value": values.write(value, "")})


@pytest.mark.parametrize("seed", range(4))
def test_spliced_msgpack_has_the_bytes_themselves(seed: int) -> None:
    value, outlet, frames = many(seed), Spliced(outlets.MSGPACK), Frames()
    written = b"".join(pieces.windows(outlet.pieces({"value": values.write(value, "", outlet)})))
    framed = values.write(value, "", frames)
    assert written == msgspec.msgpack.encode({"value": _filled(framed, frames.found)})


def _filled(told: Any, frames: list[Any]) -> Any:
    """The value with each frame's bytes in its place."""
    if isinstance(told, list):
        return [_filled(one, frames) for one in told]
    if not isinstance(told, dict):
        return told
    if "frame" not in told:
        return {key: _filled(one, frames) for key, one in told.items()}
    key = "base64" if "dtype" in told else "data"
    return {**{name: one for name, one in told.items() if name != "frame"}, key: frames[told["frame"]]}


def test_nothing_large_needs_no_mark() -> None:
    outlet = Spliced(outlets.JSON)
    assert list(outlet.pieces(values.write(m.Blob(data=b"abc"), "bytes", outlet))) == [
        b'{"type":"bytes","mime":"application/octet-stream","data":"YWJj"}'
    ]


def test_tensors_are_a_file_that_the_library_reads() -> None:
    drawn = np.random.default_rng(0)
    named = {
        f"{dtype}.0": m.InlineTensor(
            dtype=dtype,  # type: ignore[arg-type]
            shape=(3, 5),
            data=drawn.integers(0, 2, 15 * size, np.uint8).tobytes(),
        )
        for dtype, size in ITEM_BYTES.items()
    }
    written = b"".join(tensors.safetensors(named, {"run": "r"}))
    found = stored.load(written)
    assert found.keys() == named.keys()
    for name, value in named.items():
        assert found[name].dtype is getattr(torch, value.dtype)
        assert tuple(found[name].shape) == value.shape
        assert found[name].contiguous().view(torch.uint8).numpy().tobytes() == value.data
    assert written[8] == ord("{")
    assert int.from_bytes(written[:8], "little") % 8 == 0


def test_a_file_of_tensors_says_whose_they_are(tmp_path: Any) -> None:
    value = m.InlineTensor(dtype="float32", shape=(1,), data=bytes(4))
    (tmp_path / "a.safetensors").write_bytes(b"".join(tensors.safetensors({"x": value}, {"seed": "7"})))
    with safe_open(tmp_path / "a.safetensors", "pt") as opened:
        assert opened.metadata() == {"seed": "7"}
