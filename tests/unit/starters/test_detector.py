"""The detector recognizes new drawings, and the renderer draws the given scene."""

import itertools

import numpy as np
import torch

from walkgraph.starters.shapes.detector import detect
from walkgraph.starters.shapes.render import CELL, GROUNDS, PALETTE, RADII, SIDE, coverage, draw, offsets, render, rows
from walkgraph.starters.shapes.scenes import Item, Scene, draw_scenes, scene

torch.set_num_threads(1)


def test_fresh_drawings_are_read_back_exactly() -> None:
    scenes = list(itertools.islice(draw_scenes(11, reserved=True), 60))
    seen = [detect(picture) for picture in draw(scenes, 4).numpy()]
    assert [s.scene for s in seen] == scenes
    assert not any(s.strange for s in seen)


def test_every_kind_of_item_is_read_at_every_place() -> None:
    scenes = [
        scene(cell % 3, (Item(s, (s + cell) % 6, z, cell),)) for s in range(4) for z in range(2) for cell in range(9)
    ]
    assert [detect(picture).scene for picture in draw(scenes, 9).numpy()] == scenes


def test_places_are_read_to_a_fraction_of_a_pixel() -> None:
    scenes = list(itertools.islice(draw_scenes(12, reserved=False), 30))
    items, backgrounds = rows(scenes)
    shifts = offsets(len(scenes), 2)
    pictures = render(items, backgrounds, shifts).mul(255).byte().movedim(1, -1).numpy()
    for shown, picture, shift in zip(scenes, pictures, shifts.tolist(), strict=True):
        middles = [
            ((i.cell % 3 + 0.5) * CELL + x, (i.cell // 3 + 0.5) * CELL + y)
            for i, (x, y) in zip(shown.items, shift, strict=False)
        ]
        for got, want in zip(detect(picture).middles, middles, strict=True):
            assert np.hypot(got[0] - want[0], got[1] - want[1]) < 0.3


def test_small_noise_changes_nothing_and_a_smear_is_strange() -> None:
    shown = scene(0, (Item(3, 4, 0, 2),))
    picture = draw([shown], 1)[0].numpy()
    noisy = np.clip(picture.astype(int) + np.random.default_rng(0).integers(-8, 9, picture.shape), 0, 255)
    assert detect(noisy.astype(np.uint8)).scene == shown
    smeared = picture.copy()
    smeared[50:54, 4:40] = PALETTE[0]
    assert detect(smeared).strange == 1


def test_an_empty_picture_has_its_background() -> None:
    for background in range(3):
        seen = detect(draw([Scene(background, ())], 0)[0].numpy())
        assert seen.scene == Scene(background, ())
        assert seen.strange == 0


def test_areas_follow_the_radii() -> None:
    middle = torch.tensor([SIDE / 2, SIDE / 2])
    for size, radius in enumerate(RADII):
        disc = np.pi * radius**2
        areas = [float(coverage(torch.tensor(s), torch.tensor(size), middle).sum()) for s in range(4)]
        assert abs(areas[0] / disc - 1) < 0.02
        assert all(0.75 < area / disc < 1.15 for area in areas)


def test_colours_are_exact_inside_and_outside() -> None:
    picture = draw([scene(2, (Item(1, 3, 1, 4),))], 0)[0]
    assert tuple(picture[32, 32].tolist()) == PALETTE[3]
    assert tuple(picture[0, 0].tolist()) == GROUNDS[2]
