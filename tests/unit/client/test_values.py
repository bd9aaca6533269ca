"""Values on their way in and out."""

from __future__ import annotations

import base64
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.unit.client.service import TASK
from walkgraph.client import File, Picture, Sound, Tensor, Text, Turn, Video, values
from walkgraph.client.giving import Packing, packed, request_of

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def asked(framing: bool = False, **given: Any) -> tuple[dict[str, Any], list[bytes]]:
    packing = Packing(framing=framing)
    body = request_of(TASK, given, packing)
    json.dumps(body)
    return body, packing.frames


def pixels_of(text: str) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text))))


def test_names_are_told_apart() -> None:
    body, _ = asked(prompt="a", steps=np.int64(3), seed=7, cfg=1.5, session="s", priority=2, image=None)
    params = {"steps": 3, "seed": 7, "cfg": 1.5}
    assert body == {"inputs": {"prompt": "a"}, "params": params, "session": "s", "priority": 2}
    with pytest.raises(TypeError, match="did you mean `prompt`"):
        asked(promt="a")
    with pytest.raises(TypeError, match="there are `prompt`"):
        asked(zzz=1)


def test_pictures_of_any_kind_are_the_same_picture(tmp_path: Path) -> None:
    image = Image.fromarray(PIXELS)
    image.save(tmp_path / "p.png")
    data = (tmp_path / "p.png").read_bytes()
    given = [image, PIXELS, torch.from_numpy(PIXELS), tmp_path / "p.png", data, bytearray(data), Picture.of(PIXELS)]
    for one in given:
        assert (pixels_of(asked(image=one)[0]["inputs"]["image"]) == PIXELS).all()
        body, frames = asked(framing=True, image=one)
        assert body["inputs"]["image"] == {"type": "image", "frame": 0}
        assert (np.asarray(Image.open(io.BytesIO(frames[0]))) == PIXELS).all()
    for wrong in (PIXELS.astype(np.float32), np.zeros((2, 2, 2), np.uint8), object()):
        with pytest.raises(TypeError):
            asked(image=wrong)
    with pytest.raises(TypeError, match=r"Path\('dog\.png'\)"):
        asked(image="dog.png")
    with pytest.raises(TypeError, match=r"Sound\.of"):
        asked(sound=np.zeros(4))


def test_numbers_of_any_kind_are_the_same_tensor(tmp_path: Path) -> None:
    array = np.array([[0.5, -1.0], [2.0, 3.0]], dtype=np.float32)
    np.save(tmp_path / "a.npy", array)
    (tmp_path / "a.json").write_text(json.dumps(array.tolist()))
    wrapped = {"type": "state", "data": array.tolist()}
    kept = Tensor("float32", (2, 2), array.tobytes())
    for one in (array, torch.from_numpy(array), tmp_path / "a.npy", tmp_path / "a.json", kept):
        assert asked(state=one)[0]["inputs"]["state"] == wrapped
    assert asked(state=array.tolist())[0]["inputs"]["state"] == array.tolist()
    assert asked(state=[np.float32(0.5), 1])[0]["inputs"]["state"] == [0.5, 1]
    assert asked(state=[array, array])[0]["inputs"]["state"] == [wrapped, wrapped]
    assert asked(state=0.5)[0]["inputs"]["state"] == 0.5


def test_many_numbers_go_as_bytes_where_they_may() -> None:
    array = np.arange(600, dtype=">f4").reshape(2, 300)[:, ::2]
    body, frames = asked(framing=True, state=array)
    head = body["inputs"]["state"]
    assert head == {"type": "state", "dtype": "float32", "shape": [2, 150], "frame": 0}
    assert (np.frombuffer(frames[0], "<f4").reshape(2, 150) == array).all()
    assert asked(state=array)[0]["inputs"]["state"]["data"] == array.tolist()


def test_parts_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    (tmp_path / "a.wav").write_bytes(Sound.of([0.0], 8000).data)
    parts = ["a", tmp_path / "a.txt", Image.fromarray(PIXELS), tmp_path / "a.wav", {"type": "text", "text": "b"}]
    found = asked(parts=parts)[0]["inputs"]["parts"]
    assert [part["type"] for part in found] == ["text", "text", "image", "audio", "text"]
    assert [part.get("text") for part in found if part["type"] == "text"] == ["a", "hello", "b"]
    assert (pixels_of(found[2]["data"]) == PIXELS).all()


def test_a_video_is_played_saved_and_sent_again(tmp_path: Path) -> None:
    data = b"\x1a\x45\xdf\xa3rest"
    video = values.read({"type": "video", "mime": "video/webm", "data": base64.b64encode(data).decode()})
    assert isinstance(video, Video)
    assert video._repr_html_().startswith('<video controls src="data:video/webm;base64,')
    assert video.save(tmp_path / "film").name == "film.webm"
    declared = {**TASK, "inputs": {"film": {"modality": "video", "many": False}}}
    for given in (video, tmp_path / "film.webm", data):
        packing = Packing(framing=True)
        request = request_of(declared, {"film": given}, packing)
        assert request["inputs"]["film"] == {"type": "video", "frame": 0}
        assert packing.frames == [data]
    assert asked(parts=[tmp_path / "film.webm"])[0]["inputs"]["parts"][0]["type"] == "video"


def test_a_conversation_is_turns_of_texts_and_files(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(Picture.of(PIXELS).data)
    declared = {**TASK, "inputs": {"chat": {"modality": "messages", "many": False}}}
    turns = [
        Turn("user", [tmp_path / "p.png", "what?"]),
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        Turn("tool", "a cat", tool_call_id="1"),
        {"role": "user", "content": Image.fromarray(PIXELS)},
        "and now?",
    ]
    packing = Packing(framing=True)
    found = request_of(declared, {"chat": turns}, packing)["inputs"]["chat"]
    assert found == [
        {"role": "user", "content": [{"type": "image", "frame": 0}, {"type": "text", "text": "what?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "a cat", "tool_call_id": "1"},
        {"role": "user", "content": [{"type": "image", "frame": 1}]},
        {"role": "user", "content": "and now?"},
    ]
    assert len(packing.frames) == 2
    hello = [{"role": "user", "content": "hello"}]
    assert request_of(declared, {"chat": "hello"}, packing)["inputs"]["chat"] == hello
    assert packed({"inputs": {"chat": [Turn("user", "hello")]}}, packing)["inputs"]["chat"] == hello
    for wrong in (5, [5]):
        with pytest.raises(TypeError, match=r"a (conversation|turn) is"):
            request_of(declared, {"chat": wrong}, packing)


def test_a_request_in_the_services_words_may_hold_files(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(Picture.of(PIXELS).data)
    request = {"inputs": {"image": tmp_path / "p.png", "prompt": ["a", "b"], "state": np.ones(2)}, "stream": False}
    found = packed(request, Packing(framing=False))
    assert (pixels_of(found["inputs"]["image"]) == PIXELS).all()
    assert found["inputs"]["prompt"] == ["a", "b"]
    assert found["inputs"]["state"] == [1.0, 1.0]
    assert found["stream"] is False
    assert packed({"params": {}}, Packing(framing=False)) == {"params": {}}


def test_what_comes_back_has_its_kind(tmp_path: Path) -> None:
    data = base64.b64encode(Picture.of(PIXELS).data).decode()
    picture = values.read({"type": "image", "mime": "image/png", "data": data})
    assert isinstance(picture, Picture)
    assert (picture.numpy() == PIXELS).all()
    assert picture.save(tmp_path / "out").name == "out.png"
    assert picture._repr_mimebundle_()["image/png"] == picture.data
    assert picture == values.read({"type": "image", "mime": "image/png", "frame": 1}, [b"", picture.data])
    film = values.read({"type": "bytes", "mime": "application/octet-stream", "data": "AAAA"})
    assert type(film) is File
    assert film.save(tmp_path / "film.bin").read_bytes() == b"\0\0\0"
    archive = values.read({"type": "bytes", "mime": "application/zip", "data": "UEsFBg=="})
    assert isinstance(archive, File)
    assert archive.save(tmp_path / "found").name == "found.zip"
    text = values.read({"type": "text", "text": "a"})
    assert isinstance(text, Text)
    assert text == "a"
    assert values.read({"type": "flag", "value": True}) is True
    assert values.read({"type": "list", "items": [{"type": "text", "text": "a"}]}) == ["a"]
    assert values.read({"type": "named", "items": {"x": {"type": "v", "value": 1.5}}}) == {"x": 1.5}
    assert values.read({"type": "absent"}) is None
    assert values.read({"type": "tensor", "dtype": "float32", "shape": [2]}) is None, "it stayed on its device"


def test_tensors_come_as_lists_and_as_bytes() -> None:
    array = np.array([[1.5, -2.0]], dtype=np.float32)
    head = {"type": "actions", "dtype": "float32", "shape": [1, 2]}
    text = base64.b64encode(array.tobytes()).decode()
    for value, frames in [({"data": array.tolist()}, []), ({"base64": text}, []), ({"frame": 0}, [array.tobytes()])]:
        found = values.read({**head, **value}, frames)
        assert isinstance(found, Tensor)
        assert found.numpy().dtype == np.float32
        assert (np.asarray(found) == array).all()
        assert torch.from_numpy(np.array(found)).tolist() == found.tolist()
    holes = values.read({"type": "t", "dtype": "float32", "shape": [2], "data": [1.0, None]})
    assert isinstance(holes, Tensor)
    assert np.isnan(holes.numpy()).tolist() == [False, True]
    wide = torch.tensor([1.0, -3.5, 1e30], dtype=torch.bfloat16)
    narrow = Tensor("bfloat16", (3,), wide.view(torch.int16).numpy().tobytes())
    assert narrow.numpy().tolist() == wide.float().tolist()
    assert Tensor("int64", (1,), [2**60]).item() == 2**60


def test_sounds_are_samples_and_join() -> None:
    first, second = Sound.of(np.sin(np.arange(400) / 9), 8000), Sound.of([0.5] * 200, 8000)
    assert (first.rate, first.seconds) == (8000, 0.05)
    assert np.abs(first.samples()[:, 0] - np.sin(np.arange(400) / 9)).max() < 1e-4
    joined = values.joined([Text("a"), Text("b"), first, second, Sound.of([0.0], 16000), Text("c")])
    assert [type(value) for value in joined] == [Text, Sound, Sound, Text]
    assert joined[0] == "ab"
    whole = joined[1]
    assert isinstance(whole, Sound)
    assert whole.samples().shape == (600, 1)
    assert (whole.samples() == np.concatenate([first.samples(), second.samples()])).all()
    assert Sound.of(np.zeros((5, 2)), 8000).samples().shape == (5, 2)
    with pytest.raises(TypeError):
        Sound.of(np.zeros((2, 2, 2)), 8000)
    assert first._repr_html_().startswith("<audio controls")


def test_pictures_make_a_film() -> None:
    frames = [Picture.of(np.full((4, 4, 3), value, np.uint8)) for value in (0, 128, 255)]
    assert Picture.of(np.zeros((4, 6, 3), np.uint8)).size == (6, 4)
    film = Picture.film(frames, seconds=0.2).image()
    assert film.n_frames == 3  # type: ignore[attr-defined]
    seen = []
    for k in range(3):
        film.seek(k)
        seen.append((np.asarray(film.convert("RGB"))[0, 0, 0], film.info["duration"]))
    assert seen == [(0, 200), (128, 200), (255, 1200)]


def test_a_tensor_over_a_view_can_be_pickled_and_gives_arrays_of_its_own() -> None:
    numbers = np.arange(6, dtype=np.float32)
    tensor = Tensor("float32", (2, 3), memoryview(numbers.tobytes()))
    for one in (tensor, pickle.loads(pickle.dumps(tensor))):
        array = one.numpy()
        array[0, 0] = 7.0
        assert np.array_equal(one.numpy(), numbers.reshape(2, 3))
