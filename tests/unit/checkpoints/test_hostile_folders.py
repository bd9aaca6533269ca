"""Folders that lie: headers, indices, names and files that no download has. Each is refused soon, and in short."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from walkgraph.checkpoints import known_templates
from walkgraph.checkpoints.contents import read
from walkgraph.checkpoints.fields import open_file, read_file
from walkgraph.checkpoints.files import tensors
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.errors import InvalidInput, NotFound, WalkgraphError
from walkgraph.placement.sizes import weights_folder

GIB = 2**30


def entry(shape: str = "[1]", dtype: str = '"F32"', offsets: str = "[0,4]", name: str = "a") -> bytes:
    return f'{{"{name}": {{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}}}'.encode()


def write(path: Path, header: bytes) -> None:
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))


def sparse(path: Path) -> None:
    """A file of 64 GiB that takes no room."""
    with path.open("wb") as file:
        file.truncate(64 * GIB)


@pytest.mark.parametrize(
    "header",
    [
        entry(shape="[Infinity]"),
        entry(shape="[1e400]"),
        entry(shape="[NaN]"),
        entry(shape="[1.0]"),
        entry(shape="[true]"),
        entry(shape='"1"'),
        entry(shape="[-1,-1]"),
        entry(shape=f"[{'9' * 4000}]"),
        entry(shape=f"[{','.join(['1000000'] * 300_000)}]"),
        entry(shape="[1000000000000]"),
        entry(shape="[]", offsets="[0,0]"),
        entry(dtype='{"x": 1}'),
        entry(dtype='"OTHER"', shape="[1000]"),
        entry(offsets=f"[0,{'9' * 4300}]"),
        entry(offsets="[0,4.0]"),
        entry(offsets="[4,0]"),
        entry(offsets="[0]"),
        entry(name="\\ud800"),
        entry(name="\\u001b[31m"),
        entry(name="x" * 3_000_000),
        b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b"null",
        b"[]",
    ],
    ids=lambda header: header[:60].decode(),
)
def test_a_header_that_lies_is_refused(tmp_path: Path, header: bytes) -> None:
    write(tmp_path / "model.safetensors", header)
    with pytest.raises(InvalidInput, match=r"the header of `model.safetensors` is broken; fetch it again") as refused:
        tensors(tmp_path, "model")
    assert len(str(refused.value)) < 200


def test_a_header_of_its_own_type_is_read(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", entry(dtype='"F4"', shape="[8]"))
    assert tensors(tmp_path, "model")["a"].bytes == 4


def test_a_header_as_large_as_a_file_is_not_parsed(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", b" " * 2**25)
    with pytest.raises(InvalidInput, match="is not a safetensors file"):
        tensors(tmp_path, "model")


def test_more_tensors_than_any_network_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("walkgraph.checkpoints.files._MAX_TENSORS", 3)
    for shard in (1, 2):
        names = ",".join(entry(name=f"t{shard}{i}").decode()[1:-1] for i in range(2))
        write(tmp_path / f"model-0000{shard}-of-00002.safetensors", f"{{{names}}}".encode())
    with pytest.raises(InvalidInput, match="more than 3 tensors"):
        tensors(tmp_path, "model")


@pytest.mark.parametrize(
    "name", ["../a", "..", "a/b", "\\ud800.safetensors", "a\\u0000b", "a\\nb", "a" * 5000], ids=lambda name: name[:20]
)
def test_an_index_that_names_no_file_beside_it_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(f'{{"weight_map":{{"a":"{name}"}}}}')
    with pytest.raises(InvalidInput, match="names a shard outside its folder"):
        tensors(tmp_path, "model")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_a_shard_that_is_no_file_is_refused_without_waiting_for_it(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    write(tmp_path / "model-00001-of-00002.safetensors", entry())
    make(tmp_path / "model-00002-of-00002.safetensors")
    with pytest.raises(InvalidInput, match=r"`model-00002-of-00002.safetensors` is not a file"):
        tensors(tmp_path, "model")


@pytest.mark.parametrize("name", ["config.json", "llm_config.json", "model.safetensors.index.json"])
def test_a_file_of_terabytes_is_not_read(tmp_path: Path, name: str) -> None:
    sparse(tmp_path / name)
    with pytest.raises(InvalidInput, match=f"`{name}` has {64 * GIB} bytes, more than"):
        read(tmp_path)


def test_neither_is_a_tokenizer_nor_a_template(tmp_path: Path) -> None:
    sparse(tmp_path / "tokenizer.json")
    with pytest.raises(InvalidInput, match=rf"`tokenizer.json` has {64 * GIB} bytes"):
        Trained(tmp_path / "tokenizer.json")
    sparse(tmp_path / "chat_template.jinja")
    assert known_templates.published(tmp_path) is None


def test_half_a_character_in_a_template_is_an_unknown_template(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "\\ud800"}')
    with pytest.raises(InvalidInput, match="is not known here"):
        known_templates.template_of(tmp_path, known_templates.PUBLISHED)


def test_a_file_that_became_a_pipe_since_it_was_looked_at_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{}")
    assert path.is_file()
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InvalidInput, match=r"`config.json` is not a file"):
        open_file(path)
    path.unlink()
    with pytest.raises(InvalidInput, match=r"`config.json` can't be read"):
        read_file(path, 10)


def test_a_list_of_folders_has_only_names_that_a_graph_can_have(tmp_path: Path) -> None:
    for name in (b"bad\xff", b"two\nlines", b"\x1b[31mred", b"good"):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        folder.mkdir()
        write(folder / "model.safetensors", entry())
    with pytest.raises(NotFound, match=r"\(found: `good`\)") as refused:
        weights_folder("checkpoint:none", [tmp_path])
    json.dumps(str(refused.value)).encode()


@pytest.mark.parametrize("text", ["\ud800", "x" * 10**6, "a\udfffb" * 10**5], ids=["half", "long", "both"])
def test_every_message_can_be_sent(text: str) -> None:
    message = str(WalkgraphError(text))
    assert len(message.encode()) < 20_000
    assert InvalidInput(text).info().message == message
