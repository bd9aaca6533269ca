"""Every declaration is consistent, and the catalogue contains the components of the folder."""

import ast
import re
import sys
from pathlib import Path
from typing import get_args

import pytest

from walkgraph import models, plugins
from walkgraph.components import catalogue, families, gather
from walkgraph.errors import Conflict
from walkgraph.graph.catalogue import Category, Component, Palette, Param
from walkgraph.placement.sizes import TOKENIZER
from walkgraph.placement.tables import BOUND, STOP

EACH = pytest.mark.parametrize("component", catalogue().values(), ids=list(catalogue()))
KINDS = {"integer": int, "number": (int, float), "boolean": bool, "string": str}
MODELS = Path(models.__file__).parent


def test_names_are_sorted_and_keyed_by_themselves() -> None:
    assert list(catalogue()) == sorted(catalogue())
    assert all(name == component.name for name, component in catalogue().items())
    assert catalogue() is catalogue()


@EACH
def test_a_component_has_a_category(component: Component) -> None:
    assert component.category in set(get_args(Category)) - {"Other"}
    assert (component.category == "Testing") == component.name.startswith("synthetic.")


@EACH
def test_names_are_unique_and_well_formed(component: Component) -> None:
    assert re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", component.name)
    for names in (
        [p.name for p in component.inputs],
        [p.name for p in component.outputs],
        [s.slot for s in component.states],
    ):
        assert len(names) == len(set(names))
    assert component.description.endswith("."), "a description is a sentence"


@EACH
def test_states_append_what_the_component_takes(component: Component) -> None:
    for use in component.states:
        assert {append.port for append in use.appends} <= {port.name for port in component.inputs}
        assert bool(use.appends) == (use.kind == "paged_kv")
        if use.appends and all(append.scratch for append in use.appends):
            assert use.access == "read"


@EACH
def test_tokens_of_a_cache_have_a_known_size(component: Component) -> None:
    sizes = families().get(component.weights or "")
    for use in component.states:
        if use.kind == "paged_kv":
            shapes = sizes.shapes.values() if sizes else ()
            told = [shape.caches.get(component.name, 0) for shape in shapes] or [use.token_bytes]
            assert all(told), f"say in `SIZES` what a token of `{component.name}` takes"
        else:
            assert use.token_bytes == 0


@EACH
def test_reasons_are_flags_for_flags(component: Component) -> None:
    flags = {port.name for port in component.outputs if port.type.modality == "flag"}
    for ending, reasons in component.reasons.items():
        assert {ending, *reasons} <= flags
        assert not {ending, STOP, BOUND} & {*reasons}


def test_what_reads_a_tokenizer_fits_every_family_that_holds_one() -> None:
    holding = tuple(sorted(name for name, sizes in families().items() if TOKENIZER in sizes.holds))
    assert {"bagel", "orpheus", "pi05"} <= set(holding) < set(families())
    readers = [component for component in catalogue().values() if component.reads == TOKENIZER]
    assert {component.name for component in readers} > {"text.tokenizer", "text.detokenizer"}
    assert {component.fitting for component in readers} == {holding}
    assert catalogue()["bagel.vit"].fitting == ("bagel",)
    assert catalogue()["media.picture_in"].fitting == ()


def test_drawn_weights_of_a_family_with_a_tokenizer_have_one() -> None:
    runs = {component.weights for component in catalogue().values() if component.available}
    for family, sizes in families().items():
        if TOKENIZER in sizes.holds and family in runs:
            text_edges = plugins.load(plugins.MODELS, f"{family}.presets", "text_edges")
            assert all(len(text_edges(shape)) == 2 for shape in sizes.shapes)


def test_sizes_are_of_families_that_components_read() -> None:
    assert set(families()) <= {component.weights for component in catalogue().values()}
    for sizes in families().values():
        assert set(sizes.components) <= set(catalogue())


def within(param: Param) -> bool:
    value = param.default
    if isinstance(value, bool) != (param.type == "boolean") or not isinstance(value, KINDS[param.type]):
        return False
    if isinstance(value, str):
        return not param.choices or value in param.choices
    low = param.min if param.min is not None else value
    high = param.max if param.max is not None else value
    return low <= value <= high


@EACH
def test_defaults_keep_their_bounds(component: Component) -> None:
    assert [name for name, param in component.params.items() if param.default is not None and not within(param)] == []


def test_a_default_out_of_bounds_is_seen() -> None:
    assert not within(Param(type="integer", default=9, max=8))
    assert not within(Param(type="string", default="c", choices=("a", "b")))
    assert not within(Param(type="integer", default=True))


@EACH
def test_an_available_component_names_a_class_that_is_there(component: Component) -> None:
    if component.network is None:
        return
    module, _, name = component.network.partition(":")
    source = MODELS.joinpath(*module.removeprefix(f"{plugins.MODELS}.").split(".")).with_suffix(".py")
    assert source.is_file(), f"`{component.name}` names `{component.network}`"
    names = {node.name for node in ast.parse(source.read_text()).body if isinstance(node, ast.ClassDef)}
    assert name in names, f"`{component.name}` names `{component.network}`"


def test_two_families_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "palette_of_a_test"
    for folder in (package, package / "one"):
        folder.mkdir()
        (folder / "__init__.py").touch()
    declaration = (
        "from walkgraph.graph.catalogue import Component\nCOMPONENTS = (Component(name='a.b', description=''),)\n"
    )
    (package / "one" / "components.py").write_text(declaration)
    monkeypatch.syspath_prepend(tmp_path)
    assert list(gather("palette_of_a_test")) == ["a.b"]
    (package / "two").mkdir()
    (package / "two" / "__init__.py").touch()
    (package / "two" / "components.py").write_text(declaration)
    with pytest.raises(Conflict, match=r"`a\.b`"):
        gather("palette_of_a_test")
    for name in [name for name in sys.modules if name.startswith("palette_of_a_test")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_former_name_finds_its_component_and_is_not_listed() -> None:
    now = Component(name="a.new", former=("a.old", "a.older"), description="")
    palette = Palette([now, Component(name="a.b", description="")])
    assert list(palette) == ["a.b", "a.new"]
    assert len(palette) == 2
    assert palette["a.old"] is palette["a.older"] is palette.get("a.new") is now
    assert "a.old" in palette
    assert "a.none" not in palette


@pytest.mark.parametrize("former", ["a.b", "a.old"])
def test_a_former_name_that_is_anothers_is_refused(former: str) -> None:
    others = [Component(name="a.b", description=""), Component(name="a.c", former=("a.old",), description="")]
    with pytest.raises(Conflict, match=f"`{former}`"):
        Palette([*others, Component(name="a.new", former=(former,), description="")])
