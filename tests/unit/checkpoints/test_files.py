"""Safetensors files that belong together, found by their names, their index and their headers."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from walkgraph.checkpoints.files import coded, files, header, stems, tensors
from walkgraph.errors import InvalidInput, NotFound


def safetensors(path: Path, *names: str, dtype: str = "BF16") -> Path:
    """A file with tensors of three numbers, which share their bytes."""
    size = 3 if dtype in ("I8", "F8_E4M3") else 6
    entries = {name: {"dtype": dtype, "shape": [3], "data_offsets": [0, size]} for name in names}
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    return path


def indexed(folder: Path, **where: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def shard(number: int, count: int) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"


def test_shards_without_an_index_are_read_by_their_headers(tmp_path: Path) -> None:
    for number, name in enumerate("abc", 1):
        safetensors(tmp_path / shard(number, 3), name)
    assert stems(tmp_path) == ["model"]
    assert [path.name for path in files(tmp_path, "model")] == [shard(number, 3) for number in (1, 2, 3)]
    assert tensors(tmp_path, "model").keys() == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        ([(1, 3), (3, 3)], NotFound, "has 2 of 3 shards of `model` and lacks `model-00002-of-00003.safetensors`"),
        ([(1, 2), (2, 2), (1, 3)], InvalidInput, "of 2 and of 3 files; keep those of one"),
        ([(0, 2), (1, 2)], InvalidInput, "not numbered from 1 to 2"),
        ([(1, 0)], InvalidInput, "not numbered"),
        ([(1, 10**9)], InvalidInput, "not numbered"),
        ([], NotFound, "neither `model.safetensors` nor `model.safetensors.index.json`, nor shards"),
    ],
)
def test_shards_that_are_not_whole_are_told_exactly(
    tmp_path: Path, names: Sequence[tuple[int, int]], error: type[InvalidInput], said: str
) -> None:
    for number, (at, count) in enumerate(names):
        safetensors(tmp_path / shard(at, count), str(number))
    with pytest.raises(error, match=said):
        files(tmp_path, "model")


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    safetensors(tmp_path / shard(1, 2), "a", "b")
    safetensors(tmp_path / shard(2, 2), "b")
    with pytest.raises(InvalidInput, match=r"`model-00001-of-00002.safetensors` and .* both hold the tensor `b`"):
        tensors(tmp_path, "model")


def test_an_index_that_names_what_its_shard_lacks_is_refused_with_both(tmp_path: Path) -> None:
    safetensors(tmp_path / "one.safetensors", "a")
    safetensors(tmp_path / "two.safetensors", "b")
    indexed(tmp_path, a="one.safetensors", b="two.safetensors", c="two.safetensors")
    with pytest.raises(InvalidInput, match=r"index.json` says that `c` is in `two.safetensors`, which lacks it"):
        tensors(tmp_path, "model")
    indexed(tmp_path, a="two.safetensors", b="two.safetensors")
    with pytest.raises(InvalidInput, match=r"`a` is in `two.safetensors`"):
        tensors(tmp_path, "model")


def test_files_of_an_index_are_no_stems_and_a_single_file_comes_first(tmp_path: Path) -> None:
    safetensors(tmp_path / "part-1.safetensors", "a")
    indexed(tmp_path, a="part-1.safetensors")
    assert stems(tmp_path) == ["model"]
    assert tensors(tmp_path, "model").keys() == {"a"}
    safetensors(tmp_path / "model.safetensors", "whole")
    assert tensors(tmp_path, "model").keys() == {"whole"}


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 3}}', "{"])
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    for read in (stems, lambda folder: files(folder, "model")):
        with pytest.raises(InvalidInput, match=r"model\.safetensors\.index\.json"):
            read(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"123",
        b"\xff" * 16,
        (5).to_bytes(8, "little") + b"[1,2]",
        (2).to_bytes(8, "little") + b"{",
        (40_000).to_bytes(8, "little") + b"[" * 40_000,
        (9).to_bytes(8, "little") + b'{"a": {}}',
    ],
)
def test_other_files_are_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=r"`x\.safetensors`"):
        header(path)


def test_numbers_that_need_a_scale_are_told_with_what_is_missing() -> None:
    assert [coded("w", dtype) for dtype in ("F64", "F32", "F16", "BF16")] == [None] * 4
    for dtype in ("I8", "U8", "F8_E4M3", "F8_E5M2", "I64", "BOOL", "F4"):
        said = coded("w", dtype)
        assert said is not None
        assert said.startswith(f"`w` holds {dtype} numbers")
        assert "no scale of it (`w_scale`) is there" in said
    assert "its scale (`w_scale_inv`) isn't read" in str(coded("w", "I8", ("w", "w_scale_inv", "v_scale")))
