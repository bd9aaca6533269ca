"""BAGEL against the published code: a checkpoint in the public layout, read by our loader and served by our graph.

The published code's answers are stored (`tests/golden/make_bagel.py` says how they were made); weights and pictures are
made anew from names and seeds. Both sides compute in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.golden import bagel_tiny as tiny
from tests.golden.bagel_runs import PICTURES, Seen, deployed, graph_document, kept, levels, serve, used, watched
from tests.support.local import LocalDeployment
from tests.unit.engine.plans import call, engine_of, outputs, plan_of
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.components import catalogue, families
from walkgraph.graph.document import Weights
from walkgraph.layers.pictures.patches import patchify, to_levels
from walkgraph.layers.positions import sincos_grid
from walkgraph.models.bagel.config import BAGEL_7B_MOT, read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.weights import load_autoencoder, load_bagel
from walkgraph.placement.sizes import find_sizes
from walkgraph.starters.shapes.context import Context, Guidance, denoise, to_latents

CLOSE = {"rtol": 2e-4, "atol": 2e-4}
"""Tolerance for numbers about 1 after one forward: sums run in another order."""
DRAWN = {"rtol": 1e-3, "atol": 1e-3}
"""After seven steps, each from the one before: a missing branch is thirty times as far."""
DRAWINGS = [name for name, asked in tiny.ASKED.items() if asked.task != "image_to_text"]
WRITINGS = [name for name, asked in tiny.ASKED.items() if asked.task == "image_to_text"]


def answer(name: str) -> Tensor:
    return torch.from_numpy(tiny.answers()[name])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("weights")
    tiny.write_folder(root)
    return root


@pytest.fixture(scope="module")
def model(root: Path) -> Bagel:
    return load_bagel(root / "BAGEL-tiny", read_bagel(root / "BAGEL-tiny")).pack()


def close(got: Tensor, wanted: Tensor, **bounds: float) -> None:
    torch.testing.assert_close(got.float(), wanted.float(), **(bounds or CLOSE))


# ── the checkpoint ──────────────────────────────────────────────────────────────────────────────


def test_the_published_folder_is_read_for_what_it_is(root: Path) -> None:
    config = read_bagel(root / "BAGEL-tiny")
    assert (config.llm.width, config.llm.layers, config.llm.kv_heads, config.llm.head_dim) == (64, 3, 2, 16)
    assert (config.vit.layers, config.vit.side, config.vit.patch) == (2, 70, 14)
    assert config.latent_side == BAGEL_7B_MOT.latent_side
    assert [config.tokens.bos, config.tokens.eos] == tiny.answers()["special"].tolist()
    assert [config.tokens.boi, config.tokens.eoi] == tiny.answers()["edges"].tolist()
    assert config.vae_pictures == BAGEL_7B_MOT.vae_pictures


def test_the_published_folder_is_measured_for_a_plan(root: Path) -> None:
    sizes = find_sizes(families(), [root])(Weights(family="bagel", source="checkpoint:BAGEL-tiny"))
    for part, stem in (("model", "ema"), ("autoencoder", "ae")):
        state = load_file(root / "BAGEL-tiny" / f"{stem}.safetensors")
        assert sizes.numbers[part] == sum(tensor.numel() for tensor in state.values())
    assert sizes.caches["bagel.backbone"] == 2 * 3 * 2 * 16


@pytest.mark.parametrize("name", tiny.POSITIONS)
def test_tables_of_positions_are_the_published_ones(name: str) -> None:
    side = tiny.POSITIONS[name]
    close(sincos_grid(side, tiny.LLM["hidden_size"])[::97], answer(f"table/{name}"), rtol=0, atol=1e-6)


def test_texts_are_cut_into_the_same_tokens(root: Path) -> None:
    vocabulary = Trained(root / "BAGEL-tiny" / "vocab.json")
    for index, text in enumerate(tiny.TEXTS):
        assert vocabulary.encode(text) == tiny.answers()[f"ids/{index}"].tolist()
    assert [vocabulary.bos, vocabulary.eos] == tiny.answers()["special"].tolist()
    assert vocabulary.decode(vocabulary.encode(tiny.TEXTS[1])) == tiny.TEXTS[1]


# ── pictures ────────────────────────────────────────────────────────────────────────────────────


def test_sizes_are_those_of_the_published_transforms() -> None:
    for width, height, *wanted in tiny.answers()["sizes"].tolist():
        first = BAGEL_7B_MOT.vae_pictures.target(width, height)
        assert [*first, *BAGEL_7B_MOT.vae_pictures.target(*first), *BAGEL_7B_MOT.vit_pictures.target(*first)] == wanted


@pytest.mark.parametrize("name", PICTURES)
def test_pixels_are_those_of_the_published_transforms(name: str) -> None:
    for kind, pixels in pixels_of(name).items():
        assert list(pixels.shape) == tiny.answers()[f"pixels/{name}/{kind}/shape"].tolist()
        assert torch.equal(to_levels(pixels).movedim(-1, 0)[:, ::7, ::7], answer(f"pixels/{name}/{kind}"))


@cache
def pixels_of(name: str) -> dict[str, Tensor]:
    """The outputs of the graph's two picture nodes."""
    found = graph_document()["nodes"]
    nodes = {node: catalogue()[found[node]["component"]] for node in ("vae_picture", "vit_picture")}
    engine = engine_of(plan_of({node: (str(component.network), {}) for node, component in nodes.items()}))
    given: dict[str, Any] = {"image": PICTURES[name]}
    pixels: list[Tensor] = []
    for node, component in nodes.items():
        defaults = {key: param.default for key, param in component.params.items()}
        [out] = outputs(engine, call(node, given, **{**defaults, **found[node]["params"]}))
        given = {"pixels": out["pixels"]}
        pixels.append(out["pixels"])
    return {"vae": pixels[0], "vit": pixels[1]}


@pytest.mark.parametrize("name", PICTURES)
def test_encoders_give_what_the_published_ones_give(root: Path, model: Bagel, name: str) -> None:
    pixels = pixels_of(name)
    folder = root / "BAGEL-tiny"
    close(load_autoencoder(folder, model.config).encode(pixels["vae"][None])[0, :, ::3, ::3], answer(f"latents/{name}"))
    patches = patchify(pixels["vit"][None], 14)[0]
    rows, columns = (side // 14 for side in pixels["vit"].shape[1:])
    ids = (torch.arange(rows)[:, None] * 70 + torch.arange(columns)).flatten()
    with torch.inference_mode():
        close(model.vit_tokens(patches, ids, [len(patches)])[::9], answer(f"seen/{name}"))


# ── the networks alone ──────────────────────────────────────────────────────────────────────────


def test_logits_of_forced_tokens_are_the_published_ones(root: Path, model: Bagel) -> None:
    """A seen picture and a text, then tokens that it is told to have written: by the modules, without an engine."""
    vocabulary = Trained(root / "BAGEL-tiny" / "vocab.json")
    forced = torch.tensor([[vocabulary.bos, *tiny.FORCED]])
    with torch.inference_mode():
        context = Context.empty(model, 1).picture_seen(pixels_of("scene")["vit"][None])
        ids = torch.tensor([[vocabulary.bos, *vocabulary.encode(tiny.TEXTS[1]), vocabulary.eos]])
        context, _ = context.text(ids, torch.ones_like(ids, dtype=torch.bool))
        assert [context.seen.shape[1], int(context.position)] == tiny.answers()["tell/main/counters"].tolist()
        _, states = context.text(forced, torch.ones_like(forced, dtype=torch.bool))
        close(model.logits(states[0]), answer("forced"))


def test_a_picture_is_drawn_by_the_modules_alone(root: Path, model: Bagel) -> None:
    """Text, a picture and text again, then seven steps with both guidances: contiguous caches, no engine."""
    vocabulary, folder = Trained(root / "BAGEL-tiny" / "vocab.json"), root / "BAGEL-tiny"
    asked, pixels = tiny.ASKED["between"], pixels_of("scene")

    def read(context: Context, text: str) -> Context:
        ids = torch.tensor([[vocabulary.bos, *vocabulary.encode(text), vocabulary.eos]])
        return context.text(ids, torch.ones_like(ids, dtype=torch.bool))[0]

    with torch.inference_mode():
        empty = Context.empty(model, 1)
        latents = to_latents(load_autoencoder(folder, model.config), pixels["vae"][None], 2)
        grid = (pixels["vae"].shape[1] // 16, pixels["vae"].shape[2] // 16)
        no_text = read(empty, asked.parts[0][1]).picture_kept(latents, grid).picture_seen(pixels["vit"][None])
        no_image = read(read(empty, asked.parts[0][1]), asked.parts[2][1])
        how = Guidance(steps=8, text_scale=4.0, image_scale=2.0, interval=(0.0, 1.0), renorm="channel")
        noise = tiny.noise(*grid, asked.params["seed"]).flatten(0, 1)[None]
        drawn = denoise(noise, read(no_text, asked.parts[2][1]), no_text, no_image, grid, how)
    close(drawn[0, ::5], answer("between/latents"), **DRAWN)


# ── the graph ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    with watched() as seen:
        yield seen


@pytest.fixture(scope="module")
def deployment(root: Path, seen: Seen) -> LocalDeployment:
    return deployed(root, tiny.TINY, "cpu")


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_is_drawn_as_the_published_code_draws_it(deployment: LocalDeployment, seen: Seen, name: str) -> None:
    serve(deployment, name)
    for slot in used(name):
        counters, rows = kept(deployment, name, slot)
        assert counters == tiny.answers()[f"{name}/{slot}/counters"].tolist()
        close(rows, answer(f"{name}/{slot}/rows"))
    if f"{name}/written" in tiny.answers():
        assert seen.tokens[name] == tiny.answers()[f"{name}/written"].tolist()
    [latents] = seen.latents[name]
    assert [side * 16 for side in latents.shape[:2]] == tiny.answers()[f"{name}/size"].tolist()
    close(latents.flatten(0, 1)[::5], answer(f"{name}/latents"), **DRAWN)
    assert np.abs(levels(deployment, name) - tiny.answers()[f"{name}/picture"]).max() <= 1
    deployment.release(name)


@pytest.mark.parametrize("name", WRITINGS)
def test_an_answer_is_written_as_the_published_code_writes_it(
    deployment: LocalDeployment, seen: Seen, name: str
) -> None:
    serve(deployment, name)
    _, rows = kept(deployment, name, "main")
    close(rows, answer(f"{name}/main/rows"))
    assert seen.tokens[name] == tiny.answers()[f"{name}/written"].tolist()
    deployment.release(name)


def test_runs_beside_each_other_are_what_each_is_alone(root: Path) -> None:
    """Pictures of other sizes, other renorms, a thought and an answer, in the same batches."""
    names = ("last", "planned", "reason")
    with watched() as seen:
        here = deployed(root, tiny.TINY, "cpu")
        serve(here, *names)
    for name in names:
        if f"{name}/written" in tiny.answers():
            assert seen.tokens[name] == tiny.answers()[f"{name}/written"].tolist()
        if f"{name}/latents" in tiny.answers():
            close(seen.latents[name][0].flatten(0, 1)[::5], answer(f"{name}/latents"), **DRAWN)


def test_branches_on_ranks_of_their_own_draw_the_same(root: Path) -> None:
    """The encoders apart too: the picture is read on one rank, kept on another."""
    apart = {"1": ["llm_cfg_text"], "2": ["llm_cfg_img"], "3": ["vae_encoder", "vit_encoder"]}
    with watched() as seen:
        here = deployed(root, tiny.TINY, "cpu", apart)
        serve(here, "last")
    close(seen.latents["last"][0].flatten(0, 1)[::5], answer("last/latents"), **DRAWN)
    assert np.abs(levels(here, "last") - tiny.answers()["last/picture"]).max() <= 1
