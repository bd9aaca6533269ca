"""The description of the folders under the checkpoint roots."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checkpoints import LAPTOP, language_model, orpheus, snac
from walkgraph.errors import NotFound
from walkgraph.importing.recognising import known
from walkgraph.importing.surveying import folder_of, folders, offered, signature, survey


@pytest.fixture
def root(tmp_path: Path) -> Path:
    language_model("qwen3", tmp_path)
    orpheus(tmp_path / "speech")
    snac(tmp_path / "vocoder")
    (tmp_path / "notes").mkdir()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "config.json").write_text("{}")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "pytorch_model.bin").write_bytes(b"x")
    return tmp_path


def test_each_folder_is_told_with_its_family_and_whether_it_fits(root: Path) -> None:
    found = {path.name: survey(path, LAPTOP) for path in folders((root, root / "nowhere"))}
    assert sorted(found) == ["pickled", "qwen3-tiny", "speech", "vocoder"]
    text = found["qwen3-tiny"]
    assert (text.title, text.graph, text.problems) == ("Language model", "qwen3_tiny", ())
    assert text.placements == ("qwen3_tiny_one_cpu",)
    assert text.parameters > 0
    assert text.bytes == 4 * text.parameters
    assert list(text.dtypes) == ["F32"]
    assert found["speech"].remarks == ("`snac` is read from `vocoder`",)
    assert (found["vocoder"].graph, found["vocoder"].problems) == ("", ())
    assert found["vocoder"].title == "SNAC, the vocoder"
    assert "pickles" in found["pickled"].problems[0]


def test_what_is_missing_is_named(root: Path) -> None:
    (root / "speech" / "model.safetensors").unlink()
    (root / "vocoder" / "config.json").write_text("{")
    found = {path.name: survey(path, LAPTOP) for path in folders((root,))}
    assert "without weights" in found["speech"].problems[0]
    assert "config.json" in found["vocoder"].problems[0]
    assert not found["speech"].graph
    assert not found["vocoder"].graph


def test_only_listed_folders_can_be_named(root: Path) -> None:
    assert folder_of("speech", (root,)) == root / "speech"
    for name in ("..", ".cache", "notes", "speech/..", ""):
        with pytest.raises(NotFound):
            folder_of(name, (root,))


def test_a_signature_follows_the_files(root: Path) -> None:
    folder = root / "speech"
    before = signature(folder)
    assert signature(folder) == before
    (folder / "config.json").write_text("{ }")
    assert signature(folder) != before
    assert signature(root / "nowhere") == ()


def test_every_family_says_where_its_weights_are_published() -> None:
    found = offered()
    assert {one.title for one in found} >= {family.title for family in known().values()}
    for one in found:
        assert one.published, one.title
        for each in one.published:
            assert each.repository.count("/") == 1
            assert "." not in each.repository.partition("/")[0]
            assert each.bytes > 0
            assert each.files
