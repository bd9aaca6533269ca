"""Archives: what is packed comes out again, names are safe everywhere, and what is unpacked is bounded."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.palette import Served
from walkgraph.models.files import operators

PNG = b"\x89PNG\r\n\x1a\n" + b"some pixels"
JPEG = b"\xff\xd8\xff" + b"some others"
WAV = b"RIFF\x24\x00\x00\x00WAVE" + b"\x00" * 4000


@pytest.fixture(scope="module")
def served() -> Served:
    return Served("files")


def opened(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as found:
        assert found.testzip() is None
        return {entry.filename: found.read(entry) for entry in found.infolist()}


def archive_of(files: Mapping[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", how) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def test_files_are_numbered_and_get_the_suffix_of_their_kind(served: Served) -> None:
    made = served.give("files.zip", {"items": [PNG, JPEG]}, called="picture")
    assert opened(made) == {"picture-1.png": PNG, "picture-2.jpg": JPEG}
    assert list(opened(served.give("files.zip", {"items": [PNG] * 12})))[::11] == ["file-01.png", "file-12.png"]
    assert opened(served.give("files.zip", {"items": []})) == {}


def test_texts_and_sounds_are_packed_too(served: Served) -> None:
    made = served.give("files.zip", {"items": ["Rosen blühen", "Violets"], "names": ["red.txt", "blue"]}, type="text")
    assert opened(made) == {"red.txt": "Rosen blühen".encode(), "blue.txt": b"Violets"}
    sounds = served.give("files.zip", {"items": [WAV]}, type="audio")
    assert opened(sounds) == {"file-1.wav": WAV}
    assert len(sounds) < 1000, "sound is compressed"


def test_equal_files_make_equal_archives(served: Served) -> None:
    assert served.give("files.zip", {"items": [PNG]}) == served.give("files.zip", {"items": [PNG]})


def test_names_that_are_alike_are_told_apart(served: Served) -> None:
    made = served.give("files.zip", {"items": [PNG] * 4, "names": ["Cat", "cat.png", "", "CAT"]})
    assert list(opened(made)) == ["Cat.png", "cat (2).png", "file-3.png", "CAT (3).png"]


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("/etc/passwd", "_etc_passwd"),
        (r"C:\temp\a", "C_temp_a"),
        ("a\x00b\nc", "a_b_c"),
        ("con", "_con"),
        ("aux.tar", "_aux.tar"),
        (" . ", ""),
        ("a\u202egnp", "agnp"),
        ("ein rotes Rad, groß", "ein rotes Rad, groß"),
        ("x" * 300, "x" * 100),
    ],
)
def test_a_name_is_safe_in_any_folder(given: str, safe: str) -> None:
    assert operators.safe_name(given) == safe


@settings(max_examples=200)
@given(st.lists(st.text(max_size=12) | st.sampled_from(["..", "../a", "C:", "nul", "a/", "a\\b", "."]), max_size=6))
def test_every_name_is_a_file_of_the_folder(names: list[str]) -> None:
    made = Served("files").give("files.zip", {"items": [PNG] * len(names), "names": names})
    found = list(opened(made))
    assert len({name.casefold() for name in found}) == len(names)
    for name in found:
        assert Path(name).name == name == PureWindowsPath(name).name
        assert name.endswith(".png")
        assert len(name.encode()) < 450


def test_names_must_be_as_many_as_files(served: Served) -> None:
    assert "1 names for 2 items" in served.refusal("files.zip", {"items": [PNG, PNG], "names": ["a"]})


def test_pixels_are_no_file(served: Served) -> None:
    assert "media.picture_out" in served.refusal("files.zip", {"items": [1.0]})


def test_what_is_packed_comes_out_again(served: Served) -> None:
    packed = served.give("files.zip", {"items": [PNG, JPEG], "names": ["a", "b"]})
    assert served.give("files.unzip", {"archive": packed}) == {"items": [PNG, JPEG], "names": ["a.png", "b.jpg"]}


def test_only_files_of_one_kind_are_taken(served: Served) -> None:
    files = {
        "a.png": PNG,
        "notes.txt": b"hello",
        "__MACOSX/a.png": PNG,
        "in/.DS_Store": b"x",
        "s/b.wav": WAV,
    }
    archive = archive_of(files)
    taken = {kind: served.give("files.unzip", {"archive": archive}, type=kind) for kind in ("image", "audio", "text")}
    assert taken == {
        "image": {"items": [PNG], "names": ["a.png"]},
        "audio": {"items": [WAV], "names": ["s/b.wav"]},
        "text": {"items": ["hello"], "names": ["notes.txt"]},
    }
    every = served.give("files.unzip", {"archive": archive}, type="bytes")
    assert every["names"] == ["a.png", "notes.txt", "s/b.wav"]


def test_more_files_than_wanted_are_refused(served: Served) -> None:
    archive = archive_of({f"{k}.png": PNG for k in range(4)})
    assert "at most 3 files" in served.refusal("files.unzip", {"archive": archive}, most=3)
    assert len(served.give("files.unzip", {"archive": archive}, most=4)["items"]) == 4


def test_an_archive_that_would_fill_the_memory_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "MOST_BYTES", 1 << 20)
    bomb = archive_of({"a.png": bytes(1 << 20), "b.png": b"1"})
    assert len(bomb) < 3000
    assert "unpacks at most 1 MiB" in served.refusal("files.unzip", {"archive": bomb}, type="bytes")
    # An archive that tells a smaller size than it has is read no further than that, and its sum is wrong.
    liar = bytearray(archive_of({"a.png": bytes(2 << 20)}))
    for head, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", liar, liar.index(head) + place, 10)
    assert "archive" in served.refusal("files.unzip", {"archive": bytes(liar)}, type="bytes")
    assert "would pack more than 1 MiB" in served.refusal("files.zip", {"items": [bytes(1 << 20), b"1"]}, type="bytes")


def test_an_archive_of_too_many_files_is_not_read(served: Served) -> None:
    entries = b"PK\x01\x02" * (operators.MOST_FILES + 1) + archive_of({"a.png": PNG})
    assert "at most 10000 files" in served.refusal("files.unzip", {"archive": entries})


UNREADABLE = {
    "nothing": b"",
    "a picture": PNG,
    "a part": archive_of({"a.png": PNG})[:-30],
    "bzip2": archive_of({"a": PNG}, zipfile.ZIP_BZIP2),
}


# Archives hold the time, which must not be part of a test's name.
@pytest.mark.parametrize("archive", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_readable_archive_is_refused(served: Served, archive: bytes) -> None:
    assert "archive" in served.refusal("files.unzip", {"archive": archive})


def test_an_archive_with_a_password_is_refused(served: Served) -> None:
    locked = bytearray(archive_of({"a.png": PNG}))
    for head, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        locked[locked.index(head) + place] |= 1
    assert "password" in served.refusal("files.unzip", {"archive": bytes(locked)})


@settings(max_examples=60)
@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_archive_ends_the_run_or_gives_files(place: int, value: int) -> None:
    archive = bytearray(archive_of({"a.png": PNG, "b.txt": b"b" * 50}))
    archive[place % len(archive)] = value
    served = Served("files")
    try:
        found = served.give("files.unzip", {"archive": bytes(archive)}, type="bytes")
    except AssertionError:
        assert "archive" in served.refusal("files.unzip", {"archive": bytes(archive)}, type="bytes")
    else:
        assert len(found["items"]) == len(found["names"])
