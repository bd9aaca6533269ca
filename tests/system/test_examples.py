"""Every bundled example, deployed and run with its defaults beside the starter, one after the other. What each makes is
measured: colours, places, frames, frequencies, words."""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.recording import Recording, answered
from tests.support.serving import Service
from walkgraph.client import Client
from walkgraph.resources import bundled
from walkgraph.starters.voice.evaluate import FOLDER, judge

Values = dict[str, list[dict[str, Any]]]
Pixels = np.ndarray[Any, Any]
RED, BLUE = (220, 38, 38), (40, 90, 222)
WAV_HEADER, RATE = 44, 24000


@pytest.fixture(scope="module")
def server(elsewhere: Recording) -> Recording:
    """A server with a picture of a red circle."""
    drawn = np.full((64, 64, 3), 255, np.uint8)
    y, x = np.mgrid[:64, :64]
    drawn[(x - 32) ** 2 + (y - 32) ** 2 < 144] = RED
    file = io.BytesIO()
    Image.fromarray(drawn).save(file, "PNG")
    elsewhere.answers["/circle.png"] = answered(file.getvalue(), kind="image/png")
    return elsewhere


def made(client: Client, example: str, inputs: dict[str, Any] | None = None, **params: Any) -> Values:
    """The outputs of its first task."""
    task = client.tasks(example)[0]["name"]
    return client.run(example, task, {"inputs": inputs or {}, "params": {"seed": 3, **params}})["outputs"]


def frames(value: dict[str, Any]) -> list[Pixels]:
    """The pictures of an animated picture; of another, the one."""
    picture = Image.open(io.BytesIO(base64.b64decode(value["data"])))
    found: list[Pixels] = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        found.append(np.asarray(picture.convert("RGB")).astype(int))
    return found


def pixels(value: dict[str, Any]) -> Pixels:
    return frames(value)[0]


def area(picture: Pixels, colour: tuple[int, int, int]) -> float:
    """The share of pixels that are about as coloured."""
    return float((np.abs(picture - np.array(colour)).max(-1) < 60).mean())


def beside(picture: Pixels, count: int, gap: int) -> list[Pixels]:
    """The pictures that stand beside each other in one."""
    side = (picture.shape[1] - gap * (count - 1)) // count
    return [picture[:, number * (side + gap) :][:, :side] for number in range(count)]


def cells(picture: Pixels, gap: int) -> list[Pixels]:
    """The four pictures of a grid with two columns, row by row."""
    side = (picture.shape[0] - gap) // 2
    rows = picture[:side], picture[-side:]
    return [cell for row in rows for cell in beside(row, 2, gap)]


def text(values: Values) -> str:
    return "".join(value["text"] for value in values["text"])


def test_every_example_is_tested() -> None:
    assert sorted(CASES) == sorted(bundled("examples"))


@pytest.mark.parametrize("name", bundled("examples"))
def test_an_example_makes_what_it_says(outward: Service, server: Recording, name: str) -> None:
    with outward.client() as client:
        client.deploy(name)
        outward.wait_ready(name)
        CASES[name](client, server)
        client.undeploy(name)


def what_is_described_is_drawn_again(client: Client, _server: Recording) -> None:
    found = made(client, "draw_and_describe", rounds=2)
    assert len(found["image"]) == 2
    assert all(0.005 < area(pixels(image), RED) < 0.5 for image in found["image"])
    assert text(found).count("red circle") == 2


def the_best_of_four_is_the_largest(client: Client, _server: Recording) -> None:
    found = made(client, "best_of_four")
    four = cells(pixels(found["all"][0]), 4)
    sizes = [picture.std() for picture in four]
    said = re.match(r"Number (\d) of four: .*red circle", text(found))
    assert said is not None
    assert int(said[1]) == 1 + int(np.argmax(sizes))
    assert len(np.unique(np.round(sizes, 3))) == 4, "four seeds"
    drawn = Image.fromarray(pixels(found["image"][0]).astype(np.uint8)).resize((96, 96), Image.Resampling.BICUBIC)
    assert np.abs(np.asarray(drawn).astype(int) - four[int(said[1]) - 1]).max() <= 1


def a_grid_shows_one_noise_at_four_strengths(client: Client, _server: Recording) -> None:
    grid = pixels(made(client, "guidance_grid")["image"][0])
    assert grid.shape == (388, 388, 3)
    pictures = [picture[:160] for picture in cells(grid, 4)]
    """Without their labels."""
    middles = [np.argwhere(np.abs(picture - np.array(RED)).max(-1) < 60).mean(0) for picture in pictures]
    assert np.ptp(middles, axis=0).max() < 6, "the same noise puts the circle at the same place"
    assert all((one != other).any() for one, other in pairwise(pictures))


def an_edit_is_taken_inside_its_mask(client: Client, _server: Recording) -> None:
    before, after, both = beside(pixels(made(client, "masked_edit")["image"][0]), 3, 6)
    middle = before.shape[1] // 2
    assert area(before, RED) > 0.01 > area(before, BLUE)
    assert area(after, BLUE) > 0.01 > area(after, RED)
    left, right = np.s_[:, 6 : middle - 6], np.s_[:, middle + 6 : -6]
    """Without what resizing mixes at the edges."""
    assert np.abs(both[left] - before[left]).max() < 30
    assert np.abs(both[right] - after[right]).max() < 30


def each_line_is_drawn_and_described(client: Client, _server: Recording) -> None:
    found = made(client, "picture_batch", {"captions": "a red circle on white\na blue square on black"})
    first, second = text(found).splitlines()
    assert ("red circle" in first, "blue square" in second) == (True, True)
    red, blue = beside(pixels(found["image"][0]), 2, 4)
    assert area(red, RED) > 0.01 > area(red, BLUE)
    assert area(blue, BLUE) > 0.01 > area(blue, RED)
    [archive] = found["archive"]
    assert (archive["type"], archive["mime"]) == ("bytes", "application/zip")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(archive["data"]))) as opened:
        assert opened.namelist() == ["a red circle on white.png", "a blue square on black.png"]
        sizes = [Image.open(opened.open(name)).size for name in opened.namelist()]
    assert sizes == [(64, 64)] * 2


def two_settings_are_compared(client: Client, _server: Recording) -> None:
    found = made(client, "two_settings")
    a, b, difference = beside(pixels(found["image"][0]), 3, 4)
    assert np.abs(difference - np.abs(a - b)).max() <= 3
    mean = ((a - b) / 255.0) ** 2
    said = re.search(r"([\d.]+) dB", text(found))
    assert said is not None
    assert float(said[1]) == pytest.approx(-10 * np.log10(mean.mean()), abs=0.2)


def a_film_goes_from_noise_to_the_picture(client: Client, _server: Recording) -> None:
    found = made(client, "watch_it_draw")
    film, (image,) = frames(found["film"][0]), frames(found["image"][0])
    assert len(film) == 11
    large = np.asarray(Image.fromarray(image.astype(np.uint8)).resize((192, 192), Image.Resampling.BICUBIC)).astype(int)
    off = [float(np.abs(frame - large).mean()) for frame in film]
    assert off[-1] == min(off)
    assert max(off[:5]) > 3 * off[-1]


def a_robot_asks_before_it_goes_on(client: Client, _server: Recording) -> None:
    run = client.start_run("robot_asks", "reach", {"params": {"seed": 1}})["id"]
    asked = 0
    while (state := client.get_run(run)["state"]) in ("waiting", "running"):
        if state == "waiting":
            assert client.approval(run)["label"].startswith("The arm has not reached")
            client.approve(run)
            asked += 1
    found = client.result(run)["outputs"]
    assert asked >= 1
    assert [value["value"] for value in found["reached"]] == [*[False] * asked, True]
    assert len(found["film"]) > 2 * asked


def sounds_are_found_and_drawn(client: Client, _server: Recording) -> None:
    found = made(client, "bands_of_noise")
    assert text(found) == "3 sounds between silences"
    wave = np.frombuffer(base64.b64decode(found["audio"][0]["data"])[WAV_HEADER:], "<i2") / 32767
    gap, left, highest = RATE // 2, 0, []
    for length in (36000, 18000, 12000):
        part, left = wave[left : left + length], left + length + gap
        power = np.abs(np.fft.rfft(part)) ** 2
        highest.append(np.searchsorted(np.cumsum(power), 0.99 * power.sum()) / length * RATE)
        assert 20 * np.log10(np.sqrt((part**2).mean())) == pytest.approx(-18, abs=0.5)
    assert highest == pytest.approx([4000, 8000, 12000], rel=0.06)
    drawn = pixels(found["image"][0]).mean(-1)
    """Time goes right, frequency up."""
    assert drawn[:80, 20:120].mean() < drawn[-80:, 20:120].mean() / 2
    assert drawn[:80, -60:-20].mean() > drawn[-80:, -60:-20].mean() / 2


def what_is_fetched_is_described(client: Client, server: Recording) -> None:
    found = made(client, "fetch_and_describe", url=f"{server.origin}/circle.png")
    assert "red circle" in text(found)
    answer = server.answers["/circle.png"]
    assert isinstance(answer, bytes)
    assert answer.endswith(base64.b64decode(found["image"][0]["data"]))


def an_agent_draws_and_looks(client: Client, _server: Recording) -> None:
    found = made(client, "agent")
    assert re.search(r"I have drawn it: .*red circle", text(found))
    (image,) = found["image"]
    assert area(pixels(image), RED) > 0.005


def a_path_leads_to_the_goal(client: Client, _server: Recording) -> None:
    found = made(client, "planned_path", moves=5, samples=12)
    film, (path,) = frames(found["film"][0]), frames(found["image"][0])
    assert found["reached"][0]["value"] or len(film) == 5
    assert path.shape == (256, 256, 3)
    marked = np.argwhere(np.abs(path - np.array((255, 59, 48))).max(-1) < 40)
    assert len(marked) >= 25
    assert np.ptp(marked, axis=0).max() > 20, "it moves"


def what_is_described_is_spoken(client: Client, _server: Recording) -> None:
    found = made(client, "speech_of_a_description")
    assert area(pixels(found["image"][0]), RED) > 0.005
    (audio,) = found["audio"]
    sound = np.frombuffer(base64.b64decode(audio["data"])[WAV_HEADER:], "<i2").astype(np.float32) / 32768
    assert judge(FOLDER).hears(sound, RATE) == text(found).split()


CASES: dict[str, Callable[[Client, Recording], None]] = {
    "agent": an_agent_draws_and_looks,
    "bands_of_noise": sounds_are_found_and_drawn,
    "best_of_four": the_best_of_four_is_the_largest,
    "draw_and_describe": what_is_described_is_drawn_again,
    "fetch_and_describe": what_is_fetched_is_described,
    "guidance_grid": a_grid_shows_one_noise_at_four_strengths,
    "masked_edit": an_edit_is_taken_inside_its_mask,
    "picture_batch": each_line_is_drawn_and_described,
    "planned_path": a_path_leads_to_the_goal,
    "robot_asks": a_robot_asks_before_it_goes_on,
    "speech_of_a_description": what_is_described_is_spoken,
    "two_settings": two_settings_are_compared,
    "watch_it_draw": a_film_goes_from_noise_to_the_picture,
}
