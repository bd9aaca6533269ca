"""The thinker against the answers that `transformers` gave on the same weights (`tests/golden/qwen3_omni`), from a
folder in the published layout, through the engine: alone, together, in parts and step by step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.qwen3_omni import thinking
from tests.support.thinking import appended, loaded, read
from tests.unit.engine.plans import outputs, serve
from walkgraph.abi.operator import LoadContext
from walkgraph.engine.engine import Engine
from walkgraph.layers.moe.sparse_mlp import SparseMLP
from walkgraph.models.qwen3_omni.thinker.operators import Thinker

torch.set_num_threads(1)
BAR = 5e-5


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("roots")
    thinking.write_folder(root)
    thinking.write_folder(root, nested=True)
    return root


@pytest.fixture(scope="module")
def engine(folders: Path) -> Engine:
    return loaded(folders, "published")


def operator(precision: str = "bf16") -> Thinker:
    drawn = ("qwen3-omni-tiny", 1)
    on: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32, "folder": None}
    return Thinker.load(LoadContext(**on, shared={}, options={}, precision=precision, random=drawn))


def wanted(talk: str) -> dict[str, Tensor]:
    with np.load(thinking.ANSWERS) as answers:
        keys = ("hidden", "logits", "ids", "positions", "delta")
        return {key: torch.from_numpy(answers[f"{talk}/{key}"]) for key in keys}


def off(got: Tensor, want: Tensor) -> float:
    return float((got - want).abs().max()) if want.numel() else 0.0


def placed(given: Sequence[dict[str, Any]]) -> Tensor:
    """The positions of pieces that follow each other."""
    begin, rows = 0.0, []
    for one in given:
        rows.append(one["positions"] + begin)
        begin = float(rows[-1][-1].max()) + 1
    return torch.cat(rows)


@pytest.mark.parametrize("talk", thinking.TALKS)
def test_a_talk_alone(engine: Engine, talk: str) -> None:
    want, run = wanted(talk), f"alone {talk}"
    given = read(engine, {run: talk})[run]
    torch.testing.assert_close(placed(given), want["positions"], rtol=0, atol=1e-4)
    hidden = [one["hidden"] for one in given if "hidden" in one]
    assert off(torch.cat([*hidden, torch.empty(0, thinking.WIDTH)]), want["hidden"]) < BAR
    assert off(given[-1]["logits"], want["logits"][0]) < BAR
    for step, token in enumerate(thinking.given()):
        (one,) = outputs(engine, appended({"token": torch.tensor([token])}, run, step))
        assert off(one["logits"], want["logits"][step + 1]) < BAR


@pytest.mark.parametrize("talk", thinking.TALKS)
def test_greedy_tokens_are_equal(engine: Engine, talk: str) -> None:
    run = f"greedy {talk}"
    token, found = read(engine, {run: talk})[run][-1]["token"], []
    for step in range(thinking.STEPS):
        found.append(int(token))
        token = outputs(engine, appended({"token": token}, run, step))[0]["token"]
    ends, want = thinking.config().marks.im_end, wanted(talk)["ids"].tolist()
    assert found == want
    assert ends not in want


def test_both_layouts_of_the_published_folder_are_one_model(folders: Path, engine: Engine) -> None:
    nested = loaded(folders, "nested")
    for talk in ("text", "film"):
        (one, other) = (read(each, {f"layout {talk}": talk})[f"layout {talk}"][-1] for each in (nested, engine))
        assert off(one["logits"], other["logits"]) < BAR


def test_experts_in_eight_bits_change_what_a_layer_gives_by_a_few_percent() -> None:
    """The same rows enter, so that the router, which keeps its format, chooses the same experts."""
    models = [operator()._model, operator(precision="fp8")._model]
    mixtures = [[part for part in model.modules() if isinstance(part, SparseMLP)] for model in models]
    assert len(mixtures[0]) == len(mixtures[1]) == 5
    for one, other in zip(*mixtures, strict=True):
        x = torch.randn(40, thinking.WIDTH, generator=torch.Generator().manual_seed(0))
        want = one(x)
        assert 0 < float((other(x) - want).norm() / want.norm()) < 0.06


def test_eight_talks_beside_each_other_are_as_each_alone(engine: Engine) -> None:
    """Texts, media and single tokens share their batches, as the talks have different numbers of pieces."""
    names = [*thinking.TALKS, "film"]
    together = {f"{index} of eight": talk for index, talk in enumerate(names)}
    given = read(engine, together)
    for step, token in enumerate(thinking.given()[:3]):
        calls = [appended({"token": torch.tensor([token])}, run, step) for run in together]
        for one, found in zip(calls, outputs(engine, *calls), strict=True):
            assert off(found["logits"], wanted(together[one.run])["logits"][step + 1]) < BAR
    for run, talk in together.items():
        hidden = [one["hidden"] for one in given[run] if "hidden" in one]
        assert off(given[run][-1]["logits"], wanted(talk)["logits"][0]) < BAR
        assert off(torch.cat([*hidden, torch.empty(0, thinking.WIDTH)]), wanted(talk)["hidden"]) < BAR
        assert [one["appended"].tolist() for one in given[run]] == [
            one["appended"].tolist() for one in read(engine, {f"{run}, alone": talk})[f"{run}, alone"]
        ]


def test_a_long_text_in_parts_tells_the_whole(engine: Engine) -> None:
    ids = torch.tensor(thinking.ids_of("A text that is longer than a batch may be."))
    thinker = operator()
    parts = thinker.split(appended({"ids": ids}, "in parts"), 7)
    assert [len(one.inputs["ids"]) for one in parts] == [7] * 6
    given = [outputs(engine, one)[0] for one in parts][-1]
    (whole,) = outputs(engine, appended({"ids": ids}, "as a whole"))
    for port in ("appended", "positions"):
        assert torch.equal(given[port], whole[port])
    assert off(given["logits"], whole["logits"]) < 1e-5


def test_media_are_never_cut() -> None:
    picture = appended(thinking.rows("picture", 1, thinking.Media(grid=(1, 3, 5))), "uncut")
    thinker = operator()
    assert list(thinker.split(picture, 4)) == [picture]
    assert thinker.rows(picture) == 17


ROWS = torch.zeros(6, thinking.WIDTH)
PICTURE = {"image": ROWS, "grid": torch.tensor([1, 2, 3]), "deepstack": ROWS.expand(3, -1, -1)}


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({**PICTURE, "ids": torch.tensor([1])}, "either tokens or media"),
        ({**PICTURE, "grid": torch.tensor([1, 2, 4])}, r"of 6 rows, and got \[1, 2, 4\]"),
        ({**PICTURE, "grid": torch.tensor([1, -2, -3])}, "of 6 rows"),
        ({"image": ROWS, "deepstack": PICTURE["deepstack"]}, "grid"),
        ({**PICTURE, "deepstack": torch.zeros(2, 6, thinking.WIDTH)}, "takes shape"),
        ({"image": ROWS, "grid": PICTURE["grid"]}, "got nothing"),
        ({**PICTURE, "seconds": torch.tensor(0.0)}, "above 0"),
        ({**PICTURE, "audio": ROWS}, "needs `seconds`"),
        ({"audio": torch.zeros(4, 3)}, r"takes shape \[4, 64\]"),
        ({"audio": torch.zeros(0, thinking.WIDTH)}, "takes shape"),
        ({}, "exactly one of"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(engine: Engine, inputs: dict[str, Tensor], said: str) -> None:
    (done,) = serve(engine, appended(inputs, f"wrong {said}"))
    assert done.error is not None
    assert re.search(said, str(done.error))
