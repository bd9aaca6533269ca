"""Every key of every config that is read: no value is taken as it comes, and none makes a table without a bound."""

import copy
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.golden import bagel_tiny, llm_tiny, pi05_tiny, vjepa2_tiny
from walkgraph.checkpoints.contents import Contents
from walkgraph.errors import InvalidInput
from walkgraph.importing.making import checked, drawn_up
from walkgraph.importing.recognising import known
from walkgraph.models.bagel.config import bagel_json, read_bagel
from walkgraph.models.bagel.presets import BAGEL
from walkgraph.models.llm.config import read_llm
from walkgraph.models.orpheus.config import read_orpheus
from walkgraph.models.orpheus.presets import ORPHEUS
from walkgraph.models.pi05.config import pi05_json, read_pi05
from walkgraph.models.snac.config import read_snac
from walkgraph.models.snac.importing import COMPANION
from walkgraph.models.snac.model import SNAC
from walkgraph.models.vjepa2.config import read_vjepa2, vjepa2_json

Document = dict[str, Any]
Place = tuple[str, ...]
LLAMA: Document = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 711,
    "rms_norm_eps": 1e-5,
    "rope_theta": 5e5,
    "rope_parameters": None,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 5e5,
    },
    "tie_word_embeddings": True,
    "speech_tokens": vars(ORPHEUS["orpheus-tiny"].tokens),
}
QWEN: Document = {
    **bagel_tiny.LLM,
    "vocab_size": 152064,
    "head_dim": 16,
    "rope_parameters": None,
    "rope_scaling": {"rope_type": "default", "rope_theta": 1e6},
}
PUBLISHED_BAGEL: Document = {
    **bagel_tiny.CONFIG,
    "format": None,
    "llm_config": QWEN,
    "vit_config": bagel_tiny.VIT,
}
LEROBOT: Document = {
    "format": None,
    "type": "pi05",
    "pi05": True,
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
    "action_dim": None,
    "max_action_dim": 32,
    "action_horizon": None,
    "chunk_size": 10,
    "min_period": 0.004,
    "max_period": 4.0,
    "image_resolution": [224, 224],
}
VOCODER: Document = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(SNAC["snac-tiny"]).items()}
SLIDING: Document = {
    "sliding_window": None,
    "rope_parameters": None,
    "rope_scaling": {"rope_type": "default", "rope_theta": 1e4},
}
LANGUAGE: dict[str, Document] = {kind: {**config, **SLIDING} for kind, config in llm_tiny.CONFIGS.items()}
LANGUAGE["llama"]["rope_scaling"] = LLAMA["rope_scaling"]
LANGUAGE["qwen3"]["layer_types"] = LANGUAGE["qwen3_moe"]["layer_types"] = ["full_attention"]
FORMS: dict[str, tuple[str, Document]] = {
    **{kind: ("llm", {**config, "bos_token_id": None}) for kind, config in LANGUAGE.items()},
    "orpheus": ("orpheus", LLAMA),
    "bagel": ("bagel", PUBLISHED_BAGEL),
    "own bagel": ("bagel", json.loads(bagel_json(BAGEL["bagel-tiny"]))),
    "lerobot": ("pi05", LEROBOT),
    "own pi05": ("pi05", json.loads(pi05_json(pi05_tiny.CONFIG))),
    "own vjepa2": ("vjepa2", json.loads(vjepa2_json(vjepa2_tiny.CONFIG))),
    "snac": ("snac", VOCODER),
}
"""Name -> family and a config with every key that is read."""
READERS = {
    "llm": read_llm,
    "orpheus": read_orpheus,
    "bagel": read_bagel,
    "pi05": read_pi05,
    "vjepa2": read_vjepa2,
    "snac": read_snac,
}
ODD: tuple[Any, ...] = (
    10**9, 2**62, -1, 0, 1.5, 1e300, "many", True, None, [], {}, [10**9] * 3, [2] * 99, {"a": 1}
)  # fmt: skip
GOOD: set[str] = set()
"""Graphs that were found sound already."""
ENTRIES = 300_000
"""Entries of a table of tensors with the largest allowed counts of layers, for both experts."""


def contents(root: Path, document: Document) -> Contents:
    folder = root / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    return Contents(folder, {"config.json": document})


def judged(family: str, found: Contents) -> None:
    """Raises InvalidInput for what import refuses."""
    parts = COMPANION.parts(found) if family == "snac" else known()[family].parts(found)
    assert sum(len(part.expected) for part in parts) <= ENTRIES
    if family != "snac":
        document, _ = drawn_up(known()[family], found)
        text = json.dumps(document)
        if text not in GOOD:
            checked(document, found)
            GOOD.add(text)


def leaves(document: Mapping[str, Any], at: Place = ()) -> Iterator[Place]:
    for key, value in document.items():
        yield (*at, key)
        if isinstance(value, dict):
            yield from leaves(value, (*at, key))


def changed(document: Document, at: Place, value: Any) -> Document:
    found = copy.deepcopy(document)
    inner = found
    for key in at[:-1]:
        inner = inner[key]
    inner[at[-1]] = value
    return found


CASES = [(form, at) for form, (_, document) in FORMS.items() for at in leaves(document)]


@pytest.mark.parametrize("form", FORMS)
def test_the_configs_themselves_are_read(tmp_path: Path, form: str) -> None:
    family, document = FORMS[form]
    judged(family, contents(tmp_path, document))


@pytest.mark.parametrize(
    "text", ['{"hidden_size": NaN}', '{"hidden_size": Infinity}', '{"a": 1e999}', '{"a": 1, "a": 2}']
)
def test_numbers_that_json_has_not_are_refused_with_the_files_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    for read in READERS.values():
        with pytest.raises(InvalidInput, match=r"`config\.json` is not valid JSON"):
            read(tmp_path)


@pytest.mark.parametrize(("form", "at"), CASES, ids=[f"{form} {'.'.join(at)}" for form, at in CASES])
def test_any_value_of_any_key_is_read_or_refused_in_words(tmp_path: Path, form: str, at: Place) -> None:
    family, document = FORMS[form]
    for value in ODD:
        try:
            judged(family, contents(tmp_path, changed(document, at, value)))
        except InvalidInput as error:
            assert len(str(error)) < 600, (at, value)  # noqa: PT017 (accepted values are right, too)


@pytest.mark.parametrize(("form", "at"), CASES, ids=[f"{form} {'.'.join(at)}" for form, at in CASES])
def test_a_size_without_measure_is_refused_with_key_value_and_bound(tmp_path: Path, form: str, at: Place) -> None:
    family, document = FORMS[form]
    value: Any = document
    for key in at:
        value = value[key]
    if type(value) is not int or at[-1] in UNREAD:
        return
    with pytest.raises(InvalidInput) as caught:
        judged(family, contents(tmp_path, changed(document, at, 10**12)))
    said = str(caught.value)
    assert at[-1] in said
    assert re.search(r" is 1000000000000 in the config, and must be a whole number from \d+ to \d+", said), said


UNREAD = {"max_position_embeddings", "num_channels", "max_latent_size", "vit_max_num_patch_per_side", "downsample"}
"""Sizes of published configs that nothing here is made of."""


class Recording(dict[str, Any]):
    """An object that notes which of its keys are asked for."""

    def __init__(self, document: Mapping[str, Any], seen: set[Place], at: Place = ()) -> None:
        super().__init__({k: Recording(v, seen, (*at, k)) if isinstance(v, dict) else v for k, v in document.items()})
        self.seen, self.at = seen, at

    def get(self, key: str, default: Any = None) -> Any:
        self.seen.add((*self.at, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.seen.add((*self.at, key))
        return super().__getitem__(key)


@pytest.mark.parametrize("form", FORMS)
def test_every_key_that_is_read_is_among_those_tried(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, document = FORMS[form]
    folder, seen = contents(tmp_path, document).folder, set[Place]()
    for module in (sys.modules[read.__module__] for read in READERS.values()):
        for name in {"read_object", "read_optional"} & vars(module).keys():
            monkeypatch.setattr(module, name, lambda path: Recording(document, seen))
    READERS[family](folder)
    assert seen
    assert seen <= set(leaves(document)), "a config here lacks a key that is read"


@pytest.mark.parametrize("form", FORMS)
def test_what_a_network_is_made_of_is_what_import_judged(tmp_path: Path, form: str) -> None:
    """Both read by the same function: what it gives is what the tables are made of."""
    family, document = FORMS[form]
    found = contents(tmp_path, document)
    if family == "snac":
        assert {part.stem for part in COMPANION.parts(found)} == {"model"}
        return
    READERS[family](found.folder)
    for broken in ({"num_hidden_layers": 0}, {"layers": 0}, {"encoder": None}, {"paligemma_variant": "x"}, {"llm": 3}):
        for at in (at for at in leaves(document) if at[-1] in broken):
            wrong = contents(tmp_path, changed(document, at, broken[at[-1]]))
            with pytest.raises(InvalidInput) as loading:
                READERS[family](wrong.folder)
            with pytest.raises(InvalidInput, match=re.escape(str(loading.value))):
                known()[family].parts(wrong)
