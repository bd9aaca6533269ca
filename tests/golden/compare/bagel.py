"""BAGEL: tokens, pictures, encoders, contexts, logits, texts and drawings, by the bundled graph.

Beside the runs of `bagel_tiny`, some of their variants: each kind of guidance with each renorm, and intervals.
"""

import itertools
import json
import tempfile
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tests.golden import bagel_tiny as tiny
from tests.golden import make_bagel as make
from tests.golden.bagel_runs import Part, Seen, deployed, levels, watched
from tests.golden.compare.table import DRAWN, SAME, Case
from tests.golden.pictures import png, seen
from tests.golden.vjepa2_tiny import shot
from tests.support.local import LocalDeployment
from walkgraph.abi.calls import StateKey
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.graph.language.expressions import evaluate, parse
from walkgraph.layers.pictures.patches import patchify, to_levels
from walkgraph.models.bagel.config import read_bagel
from walkgraph.models.bagel.model import Bagel
from walkgraph.models.bagel.weights import load_autoencoder, load_bagel
from walkgraph.resources import bundled
from walkgraph.starters.shapes.context import Context

_EDIT = tiny.ASKED["edit"]
_DRAW = tiny.ASKED["caption"]


def _variants() -> Iterator[tuple[str, tiny.Asked]]:
    for renorm in ("global", "channel", "text_channel"):
        for kind, scales in {
            "text": {"cfg_text_scale": 4.0, "cfg_img_scale": 1.0},
            "text and picture": {"cfg_text_scale": 4.0, "cfg_img_scale": 2.0},
            "picture alone": {"cfg_text_scale": 1.0, "cfg_img_scale": 2.0},
        }.items():
            params = {**_EDIT.params, **scales, "renorm": renorm, "renorm_min": 0.2}
            yield f"edit, {kind}, {renorm}", tiny.Asked("edit", _EDIT.parts, params)
    for low, high, shift in ((0.4, 1.0, 4.0), (0.0, 0.6, 3.0), (0.5, 0.9, 1.0)):
        params = {**_DRAW.params, "cfg_interval_low": low, "cfg_interval_high": high, "shift": shift}
        yield f"draw, guided from {low} to {high}, shift {shift}", tiny.Asked("text_to_image", _DRAW.parts, params)


def cases(code: Path) -> Iterator[Case]:
    theirs = make.published(code)
    theirs.flow.tqdm = lambda steps, **_: steps
    yield from _intervals(theirs)
    yield from _pictures(theirs)
    for model in tiny.MODELS.values():
        with tempfile.TemporaryDirectory() as name, watched() as spied:
            folder = tiny.write_folder(Path(name), model)
            built = make.build(theirs, folder)
            if model == tiny.TINY:
                yield from _encoders(theirs, built, folder)
            local = deployed(Path(name), model, "cpu")
            runs = {name: tiny.ASKED[name] for name in model.asked}
            for run, asked in {**runs, **(dict(_variants()) if model == tiny.TINY else {})}.items():
                yield from _run(theirs, built, local, spied, run, asked, model.name)


def _run(
    theirs: types.SimpleNamespace,
    built: types.SimpleNamespace,
    local: LocalDeployment,
    spied: Seen,
    run: str,
    asked: tiny.Asked,
    title: str,
) -> Iterator[Case]:
    wanted: dict[str, np.ndarray] = {}
    torch.manual_seed(0)
    with torch.no_grad():
        make.record(theirs, built, run, asked, wanted)
    local.submit(run, asked.task, {"context": 2048, **asked.params}, parts=[Part(*part) for part in asked.parts])
    local.run()
    assert not local.failed, local.failed
    yield from _contexts(local, run, asked, wanted, title)
    if f"{run}/written" in wanted:
        # The published inferencer cuts its text where a begin token is written.
        begin = built.ids["bos_token_id"]
        tokens = [*itertools.takewhile(lambda token: token != begin, spied.tokens[run])]
        yield Case(f"{title}, {run}: tokens", np.array(tokens), wanted[f"{run}/written"], SAME)
    if f"{run}/latents" in wanted:
        [latents] = spied.latents[run]
        yield Case(f"{title}, {run}: latents", latents.flatten(0, 1)[::5], wanted[f"{run}/latents"], DRAWN)
        drawn, picture = levels(local, run), wanted[f"{run}/picture"].astype(np.int16)
        # A level may round to either side.
        yield Case(f"{title}, {run}: picture", (drawn / 1.0), picture / 1.0, 1 / 250)
    local.release(run)


def _read_by(asked: tiny.Asked) -> Iterator[str]:
    """The contexts that the published code reads for a run; it fills others too."""
    yield "main"
    if asked.task != "image_to_text" and asked.params.get("cfg_text_scale", 4.0) > 1:
        yield "cfg_text"
        if asked.params.get("cfg_img_scale", 2.0 if asked.task == "edit" else 1.0) > 1:
            yield "cfg_img"


def _contexts(
    local: LocalDeployment, run: str, asked: tiny.Asked, wanted: Mapping[str, np.ndarray], title: str
) -> Iterator[Case]:
    """Lengths and positions of the caches before a picture is drawn, and some of their keys and values of the first
    and the last layer."""
    [engine] = local.engines.values()
    slots = [*_read_by(asked)]
    states = {slot: engine.transfers.export(StateKey(run, slot)) for slot in slots}
    got = {slot: state["counters"][0, :2].tolist() if state else [0, 0] for slot, state in states.items()}
    there = {slot: wanted[f"{run}/{slot}/counters"].tolist() for slot in slots}
    if asked.task != "image_to_text":
        # An answer's tokens would be there already.
        yield Case(f"{title}, {run}: lengths and positions", np.array([*got.values()]), [*there.values()], SAME)
    rows: list[Case] = []
    for slot in slots:
        length, answered = there[slot][0], wanted[f"{run}/{slot}/rows"]
        if 0 < length <= got[slot][0]:
            at = torch.from_numpy(np.linspace(0, length - 1, answered.shape[2]).astype(int))
            mine = states[slot]["kv.0"][:, :, at][:, [0, -1]].movedim(0, 1).float()
            rows.append(Case(f"{title}, {run}: keys and values of `{slot}`", mine, answered, DRAWN))
    if rows:
        yield max(rows, key=lambda case: case.off)


# ── pictures and encoders ───────────────────────────────────────────────────────────────────────


def _pictures(theirs: types.SimpleNamespace) -> Iterator[Case]:
    """Pixels at the published sides: the autoencoder's, and the ViT's of these."""
    vae, vit = make.rules(theirs, 1024, 512, 16), make.rules(theirs, 980, 224, 14)
    dice = np.random.default_rng(5)
    sizes = [(1280, 720), (1080, 1920), (640, 480), (1024, 1024), (61, 40), *dice.integers(30, 1400, (12, 2)).tolist()]
    for width, height in sizes:
        first = vae.resize_transform(Image.fromarray(shot(width, height)))
        ours = seen("bagel", "vae_picture", png(shot(width, height)))
        name = f"pixels, {width} by {height}"
        yield Case(f"{name}, kept", to_levels(ours), np.asarray(first), SAME)
        wanted = np.asarray(vit.resize_transform(first))
        yield Case(f"{name}, seen", to_levels(seen("bagel", "vit_picture", ours)), wanted, SAME)


def _encoders(theirs: types.SimpleNamespace, built: types.SimpleNamespace, folder: Path) -> Iterator[Case]:
    vocabulary, config = Trained(folder / "vocab.json"), read_bagel(folder)
    for index, text in enumerate(tiny.TEXTS):
        yield Case(f"tokens of text {index}", vocabulary.encode(text), built.plain.encode(text), SAME)
    wanted: dict[str, np.ndarray] = {}
    with torch.no_grad():
        make.encoders(theirs, built, wanted)
        make.record(theirs, built, "tell", tiny.ASKED["tell"], wanted)
    model, autoencoder = load_bagel(folder, config).pack(), load_autoencoder(folder, config)
    for name, data in tiny.pictures().items():
        kept, looked = _read(data)
        yield Case(f"autoencoder, {name}", autoencoder.encode(kept[None])[0, :, ::3, ::3], wanted[f"latents/{name}"])
        patches = patchify(looked[None], 14)[0]
        rows, columns = (side // 14 for side in looked.shape[1:])
        ids = (torch.arange(rows)[:, None] * 70 + torch.arange(columns)).flatten()
        yield Case(f"ViT, {name}", model.vit_tokens(patches, ids, [len(patches)])[::9], wanted[f"seen/{name}"])
    yield Case("logits of forced tokens", _forced(model, vocabulary), wanted["forced"])


def _read(data: bytes) -> tuple[Tensor, Tensor]:
    """Pixels for the autoencoder and for the ViT, at the sizes of the answers."""
    (most, least, _), (seen_most, seen_least, _) = tiny.VAE_RULES, tiny.VIT_RULES
    kept = seen("bagel", "vae_picture", data, max_side=most, min_side=least)
    return kept, seen("bagel", "vit_picture", kept, max_side=seen_most, min_side=seen_least)


def _forced(model: Bagel, vocabulary: Trained) -> Tensor:
    """A seen picture and a text, then tokens that the model is told to have written."""
    context = Context.empty(model, 1).picture_seen(_read(tiny.pictures()["scene"])[1][None])
    ids = torch.tensor([[vocabulary.bos, *vocabulary.encode(tiny.TEXTS[1]), vocabulary.eos]])
    context, _ = context.text(ids, torch.ones_like(ids, dtype=torch.bool))
    forced = torch.tensor([[vocabulary.bos, *tiny.FORCED]])
    return model.logits(context.text(forced, torch.ones_like(forced, dtype=torch.bool))[1][0])


# ── the interval of guidance ────────────────────────────────────────────────────────────────────


def _intervals(theirs: types.SimpleNamespace) -> Iterator[Case]:
    """The steps that are guided, and their times, for many settings; no model is asked."""
    settings = [
        (steps, shift, low, high)
        for steps in range(2, 101)
        for shift in (1.0, 3.0, 4.0)
        for low, high in [*((tenth / 10, 1.0) for tenth in range(10)), *((0.0, tenth / 10) for tenth in range(1, 10))]
    ]
    wanted = [_published_steps(theirs, *setting) for setting in settings]
    got = [_our_steps(*setting) for setting in settings]
    guided = [[on for on, _ in steps] for steps in wanted]
    differ = sum([on for on, _ in mine] != on_theirs for mine, on_theirs in zip(got, guided, strict=True))
    ours, published = ([time for steps in each for _, time in steps] for each in (got, wanted))
    yield Case("times of steps", np.array(ours), np.array(published), 1e-6)
    yield Case(f"guided steps, settings of {len(settings)} that differ: {differ}", np.array([differ]), [0], SAME)


def _published_steps(
    theirs: types.SimpleNamespace, steps: int, shift: float, low: float, high: float
) -> list[tuple[bool, float]]:
    """Per step: whether text and picture are guided, and its time, as the published loop calls its model."""
    found: list[tuple[bool, float]] = []

    def flow(x_t: Tensor, timestep: Tensor, cfg_text_scale: float, **_: Any) -> Tensor:
        found.append((cfg_text_scale > 1, float(timestep[0])))
        return torch.zeros_like(x_t)

    bare = types.SimpleNamespace(
        language_model=types.SimpleNamespace(model=types.SimpleNamespace()), _forward_flow=flow
    )
    given = dict.fromkeys(
        (
            *("packed_text_ids", "packed_text_indexes", "packed_vae_position_ids", "packed_vae_token_indexes"),
            *("packed_position_ids", "packed_indexes", "past_key_values", "key_values_lens"),
            "packed_key_value_indexes",
        )
    )
    theirs.bagel.Bagel.generate_image(
        bare,
        **given,
        packed_init_noises=torch.zeros(1, 1),
        packed_seqlens=torch.tensor([3]),
        num_timesteps=steps,
        timestep_shift=shift,
        cfg_interval=[low, high],
        cfg_text_scale=4.0,
        cfg_img_scale=2.0,
    )
    return found


def _our_steps(steps: int, shift: float, low: float, high: float) -> list[tuple[bool, float]]:
    """As the bundled graph says it."""
    when, time = (parse(text) for text in _SAID)
    params = {"steps": steps, "shift": shift, "cfg_interval_low": low, "cfg_interval_high": high}
    params |= {"cfg_text_scale": 4.0, "cfg_img_scale": 2.0}
    indices = ({"index": at, "denoise": at} for at in range(steps - 1))
    return [(bool(evaluate(when, params, at)), float(evaluate(time, params, at))) for at in indices]


def _said() -> tuple[str, str]:
    """The graph's condition for the text's guidance, and its time of a step."""
    document = json.loads(bundled("graphs")["bagel"].read_text())
    [loop] = [part for part in document["walks"]["image_gen_cfg"]["body"] if isinstance(part, dict)]
    [branches] = [part["parallel"] for part in loop["body"] if isinstance(part, dict) and "parallel" in part]
    [when] = [one["when"] for one in branches if isinstance(one, dict) and one["use"] == "llm_cfg_text"]
    return when, document["nodes"]["llm"]["params"]["time"].removeprefix("=")


_SAID = _said()
