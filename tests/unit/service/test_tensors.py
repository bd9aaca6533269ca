"""Tensors of clients: headers that lie are refused before anything is made, numbers arrive unchanged or not at all."""

from __future__ import annotations

import json
import math
import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkgraph.errors import InvalidInput
from walkgraph.graph import codec
from walkgraph.service.values import values
from walkgraph.service.values.outlets import Frames
from walkgraph.service.values.tensors import exactly, kind_of, read_bytes
from walkgraph.wire import messages as m
from walkgraph.wire.tensors import ITEM_BYTES, check_header

SIDES: tuple[Any, ...] = (
    -1,
    0,
    1,
    2,
    3,
    8,
    2**31,
    2**32,
    2**62,
    2**63 - 1,
    -(2**63),
    None,
    True,
    1.0,
    "2",
    [],
    {},
    [1],
)
DTYPES: tuple[Any, ...] = (
    *("object", "O8", "float", "<f4", "complex64", "FLOAT32", "float32\x00", ""),
    *(None, 3, [], {}, True),
)
SHAPES: tuple[Any, ...] = (None, 4, "4", {}, [[2]], [1] * 33, [2] * 33, [], [1])


def sound(dtype: Any, shape: Any, data: bytes) -> bool:
    """Naive twin: what of a header, and of its bytes, is right."""
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES or not isinstance(shape, list) or len(shape) > 8:
        return False
    count = 1
    for side in shape:
        if isinstance(side, bool) or not isinstance(side, int) or side < 1:
            return False
        count *= side
    if count * ITEM_BYTES[dtype] != len(data):
        return False
    if dtype == "bool":
        return all(byte in (0, 1) for byte in data)
    size = ITEM_BYTES[dtype]
    mask = {"float64": 0x7FF0 << 48, "float32": 0x7F8 << 20, "float16": 0x7C00, "bfloat16": 0x7F80}.get(dtype)
    words = [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]
    return mask is None or all(word & mask != mask for word in words)


def header(dice: random.Random) -> tuple[Any, Any, bytes]:
    """A sound one, with none to three of its places changed."""
    dtype: Any = dice.choice(sorted(ITEM_BYTES))
    shape: Any = [dice.randint(1, 3) for _ in range(dice.randint(0, 4))]
    size = math.prod(shape) * ITEM_BYTES[dtype]
    data = bytes(dice.choices((0, 1), k=size)) if dtype == "bool" or dice.random() < 0.5 else dice.randbytes(size)
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        match dice.randrange(6):
            case 0:
                dtype = dice.choice(sorted(ITEM_BYTES))
            case 1:
                dtype = dice.choice(DTYPES)
            case 2:
                shape = dice.choice(SHAPES)
            case 3 if isinstance(shape, list):
                shape = [*shape, dice.choice(SIDES)]
            case 4 if isinstance(shape, list) and shape:
                shape = [*shape[:-1], dice.choice(SIDES)]
            case _:
                data = data[: dice.randint(0, len(data))] + dice.randbytes(dice.randrange(3))
    return dtype, shape, data


@pytest.mark.safety("S8")
def test_ten_thousand_headers_are_sound_or_refused_in_words() -> None:
    read: Counter[bool] = Counter()

    @settings(max_examples=1000, database=None)
    @given(seed=st.integers(0, 2**64 - 1))
    def ten(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(10):
            read[judged(*header(dice))] += 1

    ten()
    assert read.total() >= 10_000
    assert min(read[True], read[False]) > 1500


def judged(dtype: Any, shape: Any, data: bytes) -> bool:
    """Read it; whether it is sound."""
    value = {"type": "latents", "dtype": dtype, "shape": shape, "base64": data}
    if sound(dtype, shape, data):
        found = values.read("latents", value, "/inputs/x")
        assert isinstance(found, m.InlineTensor)
        check_header(found, len(found.data))
        return True
    with pytest.raises(InvalidInput) as caught:
        values.read("latents", value, "/inputs/x")
    assert caught.value.pointer.startswith("/inputs/x")
    assert len(str(caught.value)) < 300
    return False


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "at"),
    [
        ("float32", [2, -1], 8, "/shape"),
        ("float32", [2**32, 2**32, 2**32], 0, "/shape"),
        ("float32", [2**62, 4], 0, "/shape"),
        ("float32", [0], 0, "/shape"),
        ("float32", [1] * 33, 4, "/shape"),
        ("float64", [2], 8, "/shape"),
        ("float32", [True], 4, "/shape"),
        ("object", [1], 8, "/dtype"),
        (None, [1], 4, "/dtype"),
        ("float32", None, 4, "/shape"),
    ],
)
def test_what_a_header_lies_about_is_named(dtype: Any, shape: Any, size: int, at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_bytes(bytes(size), dtype, shape, "float", "")
    assert caught.value.pointer == at


def bits16(numbers: list[float]) -> bytes:
    """bfloat16 of numbers that it holds."""
    return b"".join(struct.pack("<f", number)[2:] for number in numbers)


@pytest.mark.parametrize(
    ("dtype", "data", "kind", "becomes"),
    [
        ("float32", np.float32([0.1, -2]).tobytes(), "float", np.float32([0.1, -2])),
        ("bfloat16", bits16([0.5, -3]), "float", np.float32([0.5, -3])),
        ("float16", np.float16([0.1, 65504]).tobytes(), "float", np.float16([0.1, 65504]).astype(np.float32)),
        ("float64", np.float64([0.25, 2**60]).tobytes(), "float", np.float32([0.25, 2**60])),
        ("int64", np.int64([2**24, -7]).tobytes(), "float", np.float32([2**24, -7])),
        ("uint8", bytes([0, 255]), "float", np.float32([0, 255])),
        ("bool", bytes([0, 1]), "float", np.float32([0, 1])),
        ("float32", np.float32([3, -0.0]).tobytes(), "int", np.int64([3, 0])),
        ("int32", np.int32([-5, 5]).tobytes(), "int", np.int64([-5, 5])),
        ("uint8", bytes([0, 1]), "bool", np.array([False, True])),
        ("int16", np.int16([-5, 5]).tobytes(), None, np.int16([-5, 5])),
    ],
)
def test_numbers_arrive_as_the_ports_take_them(dtype: str, data: bytes, kind: Any, becomes: np.ndarray) -> None:
    found = read_bytes(data, dtype, [2], kind, "")
    assert (found.dtype, found.shape, found.data) == (becomes.dtype.name, (2,), becomes.tobytes())


def test_bytes_that_are_right_already_are_not_copied() -> None:
    data = np.ones(1000, np.float32).tobytes()
    assert read_bytes(data, "float32", [10, 100], "float", "").data is data
    half = bits16([1.0] * 8)
    assert read_bytes(half, "bfloat16", [8], None, "").data is half


@pytest.mark.parametrize(
    ("dtype", "data", "kind"),
    [
        ("float64", np.float64([0.1]).tobytes(), "float"),
        ("float64", np.float64([1e300]).tobytes(), "float"),
        ("int64", np.int64([2**24 + 1]).tobytes(), "float"),
        ("int64", np.int64([2**63 - 1]).tobytes(), "float"),
        ("float32", np.float32([0.5]).tobytes(), "int"),
        ("float32", np.float32([2.0**63]).tobytes(), "int"),
        ("uint8", bytes([2]), "bool"),
        ("float32", np.float32([np.nan]).tobytes(), "float"),
        ("float64", np.float64([np.inf]).tobytes(), None),
        ("bfloat16", struct.pack("<f", -np.inf)[2:], "float"),
        ("float16", np.float16([np.nan]).tobytes(), "int"),
        ("bool", bytes([7]), "float"),
    ],
)
def test_numbers_that_would_change_are_refused(dtype: str, data: bytes, kind: Any) -> None:
    with pytest.raises(InvalidInput):
        read_bytes(data, dtype, [1], kind, "")


@settings(max_examples=300, database=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_whole_numbers_become_floats_exactly_as_python_says(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    fits = all(int(float(np.float32(number))) == number for number in numbers)
    try:
        made = exactly(array, "float32", "int64", "")
    except InvalidInput:
        assert not fits
    else:
        assert fits
        assert [int(float(number)) for number in made] == numbers


def test_lists_of_json_are_rounded_and_bytes_are_not() -> None:
    found = values.read("state", [0.1, 2], "")
    assert found.data == np.float32([0.1, 2]).tobytes()  # type: ignore[union-attr]
    for wrong in (
        [],
        [[1], [1, 2]],
        ["1"],
        [1e300],
        [None],
        {"data": [1], "base64": b"1"},
        {},
        {"data": [[1]], "shape": [1]},
    ):
        with pytest.raises(InvalidInput):
            values.read("state", wrong, "")


@pytest.mark.parametrize("dtype", sorted(ITEM_BYTES))
def test_what_a_run_gave_can_be_given_back(dtype: Any) -> None:
    data = {"bool": bytes([0, 1] * 8), "float64": np.float64([0.5, -2]).tobytes()}.get(dtype, bytes(range(16)))
    count = 16 // ITEM_BYTES[dtype]
    value = read_bytes(data, dtype, [count], None, "")
    frames = Frames()
    told = values.write(value, "latents", frames)
    assert told == {"type": "latents", "dtype": dtype, "shape": (count,), "frame": 0}
    assert frames.found == [data]
    kind = "bool" if dtype == "bool" else "float" if "float" in dtype else "int"
    plain = json.loads(json.dumps(values.write(value, "latents")))
    again = values.read("latents", plain, "", lambda: kind)  # type: ignore[arg-type,return-value]
    assert again == read_bytes(data, dtype, [count], kind, "")  # type: ignore[arg-type]


def test_what_ports_take_is_found_where_the_walks_lead(repository: Path) -> None:
    graphs = {name: codec.load((repository / f"graphs/{name}.json").read_bytes()) for name in ("reach", "vjepa2_ac")}
    assert kind_of(graphs["reach"], "act", "state") == "float"
    assert kind_of(graphs["vjepa2_ac"], "begin", "pose") == "float", "by the port alone"
    assert kind_of(graphs["vjepa2_ac"], "step", "actions") == "float"
    assert kind_of(graphs["reach"], "act", "camera") is None
