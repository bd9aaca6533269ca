"""Make the pictures of the gallery from results of the starters.

    python -m tests.golden.gallery_pictures

Writes `editor/walkgraph_editor/assets/gallery/GRAPH.png`: a strip of results, each 96 pixels high.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from tests.support.serving import Service, service
from walkgraph.client import Client
from walkgraph.client.values import Picture

FOLDER = Path(__file__).parents[2] / "editor" / "walkgraph_editor" / "assets" / "gallery"
SIDE, GAP = 96, 6
WIDTH = 4 * (SIDE + GAP) - GAP
"""Narrower results stand in the middle of so many pixels."""
PROMPTS = (
    "a large red circle at the top left and a small blue square at the bottom right on a white background",
    "a large yellow star in the center on a black background",
    "a small green triangle at the left and a large purple circle at the right on a grey background",
    "a large orange square at the bottom on a white background",
)


def strip(pictures: Sequence[Image.Image]) -> Image.Image:
    """The pictures beside each other, as high as each other, their pixels kept apart."""
    sizes = [(round(SIDE * picture.width / picture.height), SIDE) for picture in pictures]
    made = Image.new("RGB", (sum(width + GAP for width, _ in sizes) - GAP, SIDE), "white")
    left = 0
    for picture, size in zip(pictures, sizes, strict=True):
        made.paste(picture.convert("RGB").resize(size, Image.Resampling.NEAREST), (left, 0))
        left += size[0] + GAP
    return made


def spread(pictures: Sequence[Picture], count: int = 4) -> list[Image.Image]:
    """Some frames of a film, from the first to the last; the film is one animated picture, or a picture a frame."""
    films: list[Any] = [picture.image() for picture in pictures]
    places = [(film, number) for film in films for number in range(getattr(film, "n_frames", 1))]
    found: list[Image.Image] = []
    for step in range(count):
        film, number = places[round((len(places) - 1) * step / (count - 1))]
        film.seek(number)
        found.append(film.convert("RGB"))
    return found


def save(name: str, pictures: Sequence[Image.Image]) -> None:
    made = strip(pictures)
    if made.width < WIDTH:
        made = ImageOps.pad(made, (WIDTH, SIDE), color="#eceef2")
    made.quantize(64).save(FOLDER / f"{name}.png", optimize=True)


def shown(client: Client) -> dict[str, list[Image.Image]]:
    """Graph -> pictures of what it makes."""
    draw = client.task("shapes", "text_to_image")
    film = client.task("reach", "episode")(instruction="reach the red ball", seed=5).pictures("film")
    imagined = client.task("world", "imagine")(seed=3).pictures("film")
    return {
        "shapes": [draw(prompt=prompt, seed=7).picture("image").image() for prompt in PROMPTS],
        "reach": spread(film),
        "world": spread(imagined, 2),
    }


EXAMPLES = {
    "bands_of_noise": ("image", 1),
    "best_of_four": ("all", 1),
    "draw_and_describe": ("image", 3),
    "guidance_grid": ("image", 1),
    "masked_edit": ("image", 1),
    "picture_batch": ("image", 1),
    "planned_path": ("image", 1),
    "speech_of_a_description": ("image", 1),
    "two_settings": ("image", 1),
    "watch_it_draw": ("film", 4),
}
"""Example -> the output that is shown, and how many of its frames. The others ask a person, call a server or another
task."""


def of_example(running: Service, name: str) -> list[Image.Image]:
    """Pictures of what an example makes with its defaults."""
    output, count = EXAMPLES[name]
    with running.client() as client:
        client.deploy(name)
        running.wait_ready(name)
        pictures = client.task(name, client.tasks(name)[0]["name"])(seed=1).pictures(output)
        client.undeploy(name)
    return [pictures[0].image()] if count == 1 else spread(pictures, count)


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as home, service(Path(home) / "home") as running:
        running.up()
        with running.client() as client:
            for name in ("reach", "world"):
                client.deploy(name)
            for name in ("shapes", "reach", "world"):
                running.wait_ready(name)
            for name, pictures in shown(client).items():
                save(name, pictures)
        for name in EXAMPLES:
            save(name, of_example(running, name))


if __name__ == "__main__":
    main()
