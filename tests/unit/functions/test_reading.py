"""Signatures as components: what each type hint becomes, and what each mistake is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from walkgraph.functions.reading import Declared, declared
from walkgraph.functions.source import Unreadable
from walkgraph.graph.catalogue import Param

HEAD = '''"""A plug-in of a test."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, NotRequired, Optional, TypedDict, Union

import numpy as np
import PIL.Image
from PIL import Image
from PIL.Image import Image as Picture
from torch import Tensor

from walkgraph import nodes
from walkgraph.nodes import Between, EncodedAudio, Pixels, Seed, deterministic

if TYPE_CHECKING:
    import torch

Mask = Annotated[Tensor, "pixels: float[1, h, w]"]
MOST = 8


class Named(NamedTuple):
    text: str
    """Its message."""
    score: float | None


class Keyed(TypedDict):
    text: str
    left: NotRequired[Pixels]


class Partial(TypedDict, total=False):
    text: str


@dataclass
class Made:
    values: list[int]


class Strange:
    pass


class Empty(NamedTuple):
    pass


'''
LINES = HEAD.count("\n")


def read(tmp_path: Path, text: str, head: str = HEAD) -> dict[str, Declared]:
    path = tmp_path / "__init__.py"
    path.write_text(head + text)
    return declared(path, "walkgraph_a/__init__.py", "walkgraph_a", "a")


def one(tmp_path: Path, signature: str, doc: str = "Does it.") -> Declared:
    [found] = read(tmp_path, f'def f{signature}:\n    """{doc}"""\n').values()
    return found


# ── what hints become ───────────────────────────────────────────────────────────────────────────────

INPUTS = {
    "str": "text: str",
    "'str'": "text: str",
    "float": "scalar",
    "int": "scalar: int",
    "bool": "flag: bool",
    "Image.Image": "image: bytes",
    "PIL.Image.Image": "image: bytes",
    "Picture": "image: bytes",
    "Annotated[bytes, 'image']": "image: bytes",
    "Annotated[bytes, 'bytes']": "bytes: bytes",
    "EncodedAudio": "audio: bytes",
    "Annotated[Tensor, 'latents: float[h, w, c]']": "latents: float[h, w, c]",
    "Annotated[torch.Tensor, 'tokens: int']": "tokens: int",
    "Annotated[np.ndarray, 'waveform: float[n]']": "waveform: float[n]",
    "Pixels": "pixels: float[3, h, w]",
    "Mask": "pixels: float[1, h, w]",
    "list[str]": "list of text: str",
    "list[Pixels]": "list of pixels: float[3, h, w]",
    "str | None": "text: str",
    "Optional[int]": "scalar: int",
    "Union[Pixels, None]": "pixels: float[3, h, w]",
}


@pytest.mark.parametrize(("annotation", "port"), INPUTS.items())
def test_an_argument_is_an_input_port(tmp_path: Path, annotation: str, port: str) -> None:
    [found] = one(tmp_path, f"(x: {annotation}) -> str").component.inputs
    assert (found.name, str(found.type)) == ("x", port)
    assert found.optional == ("None" in annotation or "Optional" in annotation)


PARAMS = {
    "float = 1": Param(type="number", default=1.0),
    "int = -3": Param(type="integer", default=-3),
    "int = MOST": Param(type="integer", default=8),
    "bool = False": Param(type="boolean", default=False),
    "str = 'a'": Param(type="string", default="a"),
    "float": Param(type="number"),
    "Literal['a', 'b'] = 'b'": Param(type="string", default="b", choices=("a", "b")),
    "Literal[1, 2] = 2": Param(type="integer", default=2, choices=(1, 2)),
    "Annotated[float, Between(0, 2.5)] = 1.0": Param(type="number", default=1.0, min=0, max=2.5),
    "Annotated[int, Between(low=1)] = 1": Param(type="integer", default=1, min=1),
    "Annotated[int, Between(high=MOST), 'Steps.'] = 1": Param(type="integer", default=1, max=8, description="Steps."),
}


@pytest.mark.parametrize(("annotation", "param"), PARAMS.items())
def test_a_keyword_is_a_parameter(tmp_path: Path, annotation: str, param: Param) -> None:
    assert one(tmp_path, f"(*, k: {annotation}) -> str").component.params == {"k": param}


OUTPUTS = {
    "str": ["text text: str"],
    "Image.Image": ["image image: bytes"],
    "Pixels": ["pixels pixels: float[3, h, w]"],
    "list[float]": ["scalar list of scalar: float"],
    "str | None": ["text? text: str"],
    "Named": ["text text: str", "score? scalar: float"],
    "Keyed": ["text text: str", "left? pixels: float[3, h, w]"],
    "Partial": ["text? text: str"],
    "Made": ["values list of scalar: int"],
}


@pytest.mark.parametrize(("annotation", "ports"), OUTPUTS.items())
def test_what_is_returned_are_output_ports(tmp_path: Path, annotation: str, ports: list[str]) -> None:
    found = one(tmp_path, f"() -> {annotation}").component.outputs
    assert [f"{port.name}{'?' if port.optional else ''} {port.type}" for port in found] == ports


def test_the_docstring_is_the_help(tmp_path: Path) -> None:
    text = '''
def mix(a: str, b: str | None = None, *, share: float = 0.5, seed: Seed) -> Named:
    """Mixes two texts
    word by word.

    More than one needs to know.

    Args:
        a: The first,
            on two lines.
        b (str): The second: maybe.
        share: How much of `a`.

    Returns:
        Whatever.
    """
'''
    found = read(tmp_path, text)["mix"]
    made = found.component
    assert (made.name, made.description, made.category) == ("a.mix", "Mixes two texts word by word.", "Text")
    assert [(port.name, port.description, port.optional) for port in made.inputs] == [
        ("a", "The first, on two lines.", False),
        ("b", "The second: maybe.", True),
    ]
    assert made.params["share"].description == "How much of `a`."
    assert made.outputs[0].description == "Its message."
    assert (made.network, made.host, found.signature.seed) == ("walkgraph_a:mix", True, "seed")


def test_sphinx_fields_are_help_too(tmp_path: Path) -> None:
    doc = "Does it.\n\n    :param x: One.\n    :param int k: Two.\n    :returns: Three.\n    "
    found = one(tmp_path, "(x: str, *, k: int = 1) -> str", doc)
    made = found.component
    assert [made.inputs[0].description, made.params["k"].description, made.outputs[0].description] == [
        "One.", "Two.", "Three.",
    ]  # fmt: skip


def test_tensors_are_where_their_rank_is_and_all_else_on_the_host(tmp_path: Path) -> None:
    assert not one(tmp_path, "(x: Pixels) -> str").component.host
    assert not one(tmp_path, "(x: str) -> Pixels").component.host
    assert one(tmp_path, "(x: Annotated[np.ndarray, 'scalar: float[n]']) -> Image.Image").component.host


def test_each_public_function_is_a_component(tmp_path: Path) -> None:
    text = '''
CATEGORY = "Sound"
def first(x: str) -> str:
    """A."""
def _helper(x):
    pass
def second(x: str, *, k: int = 1) -> str:
    """B."""
def second_batched(x, *, k):
    pass
'''
    found = read(tmp_path, text)
    assert list(found) == ["first", "second"]
    assert found["first"].component.category == "Sound"
    assert [one.signature.batched for one in found.values()] == [None, "second_batched"]
    assert list(read(tmp_path, f"__all__ = ['second']\n{text}")) == ["second"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the statement is of Python 3.12")
def test_an_alias_by_a_statement(tmp_path: Path) -> None:
    [found] = read(tmp_path, 'type Word = str\ndef f(x: Word) -> str:\n    """A."""\n').values()
    assert str(found.component.inputs[0].type) == "text: str"


def test_a_file_is_read_and_never_run(tmp_path: Path) -> None:
    text = "raise SystemExit('it was run')\n"
    assert list(read(tmp_path, f'{text}def f(x: str) -> str:\n    """A."""\n')) == ["f"]


# ── mistakes ────────────────────────────────────────────────────────────────────────────────────────

MISTAKES = {
    "(x) -> str": "argument `x` has no type; write one, as in `x: str`",
    "(x: str)": "`f` doesn't say what it returns; write `-> str:`, for example",
    "(x: str) -> None": "`f` returns None; a component gives at least one output",
    "(*x: str) -> str": "`f` takes `*x`; ports have names, so write each argument",
    "(**x: str) -> str": "`f` takes `**x`; parameters have names, so write each argument",
    "(x: str = 'a') -> str": "argument `x` is an input port, which has no default; a parameter stands behind a `*`",
    "(x: str = None) -> str": "argument `x` may be left out; write `x: str | None = None`",
    "(x: bytes) -> str": "argument `x` is `bytes`, which says too little; write `Annotated[bytes, 'image']` or",
    "(x: Tensor) -> str": "argument `x` is `torch.Tensor`, which says too little; write `Annotated[Tensor, 'pixels:",
    "(x: Annotated[Tensor, Between(0, 1)]) -> str": "needs a text behind `torch.Tensor` that says what it holds",
    "(x: Annotated[Tensor, 'pixel: float[3]']) -> str": "argument `x` has no port type: `pixel` is not a modality",
    "(x: Annotated[Tensor, 'pixels: double[3]']) -> str": "`double` is not a dtype; use one of float",
    "(x: Annotated[Tensor, 'pixels: float[3, h w]']) -> str": "`h w` is not a size",
    "(x: Annotated[Tensor, 'text']) -> str": "argument `x` can't be `text`: a tensor is none; write `str`",
    "(x: Annotated[Tensor, 'list of pixels']) -> str": "write `list[...]` around the type of one",
    "(x: Annotated[bytes, 'pixels']) -> str": "bytes are one of `image`, `audio`, `video`, `bytes`",
    "(x: Annotated[str, 'pixels: float[3]']) -> str": "argument `x` can't be `pixels: float[3]`: `str` is no `torch",
    "(x: Annotated[str]) -> str": "has an `Annotated` with nothing behind the type",
    "(x: Strange) -> str": "argument `x` is `Strange`, which no wire carries; use `str`",
    "(x: dict) -> str": "argument `x` is `dict`; a port carries `str`",
    "(x: list) -> str": "argument `x` is a list; say of what, as in `list[str]`",
    "(x: list[list[str]]) -> str": "argument `x` is a list of lists",
    "(x: list[str | None]) -> str": "argument `x` is a list with gaps",
    "(x: str | int) -> str": "argument `x` may be of several types; a port has one",
    "(x: Literal['a']) -> str": "argument `x` is a choice: choices are parameters, so put it behind `*`",
    "(x: 'a b') -> str": "argument `x` has the type `a b`, which is not Python",
    "(x: Loop) -> str": "argument `x` uses an alias that leads to itself",
    "(*, k) -> str": "argument `k` has no type; write one, as in `k: float = 1.0`",
    "(*, k: Pixels) -> str": "If it comes by a wire, put it before the `*`",
    "(*, k: int | None = None) -> str": "a parameter always has one value of one type",
    "(*, k: int = 1.5) -> str": "argument `k` has the default `1.5`, which is no integer",
    "(*, k: float = True) -> str": "argument `k` has the default `True`, which is no number",
    "(*, k: int = len('a')) -> str": "the file is only read, so write the value itself",
    "(*, k: Annotated[int, Between(0, 5)] = 9) -> str": "argument `k` has the default `9`, outside its own bounds",
    "(*, k: Annotated[int, Between(5, 0)] = 1) -> str": "has bounds the wrong way round: `Between(5, 0)`",
    "(*, k: Annotated[int, Between()] = 1) -> str": "has bounds that can't be read",
    "(*, k: Annotated[int, Between('a')] = 1) -> str": "has the bound `'a'`, which is no number",
    "(*, k: Annotated[str, Between(0, 1)] = '') -> str": "argument `k` has bounds, which only numbers have",
    "(*, k: Annotated[int, range(3)] = 1) -> str": "has `range(3)` behind its type; bounds are written `Between(0, 1)`",
    "(*, k: Literal['a', 1] = 'a') -> str": "argument `k` has choices of different types",
    "(*, k: Literal['a', 'b'] = 'c') -> str": "argument `k` has the default `c`, which is none of its choices",
    "() -> tuple[str, str]": "is a tuple, whose parts have no names; make it a class on `NamedTuple`",
    "() -> dict[str, str]": "is a dict, whose keys are not known; make it a class on `TypedDict`",
    "() -> Strange": "what `f` returns is `Strange`, a class of its own; make it a `TypedDict` or a `NamedTuple`",
    "() -> Empty": "what `f` returns is `Empty`, which has no fields",
}  # fmt: skip


@pytest.mark.parametrize(("signature", "told"), MISTAKES.items())
def test_a_mistake_is_told_with_its_line(tmp_path: Path, signature: str, told: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(tmp_path, f'Loop = "Loop"\ndef f{signature}:\n    """Does it."""\n')
    assert str(caught.value).startswith(f"walkgraph_a/__init__.py:{LINES + 2}: ")
    assert told in str(caught.value)


FILES = {
    "def f(x: str) -> str:\n    pass\n": "1: `f` has no docstring",
    'async def f(x: str) -> str:\n    """A."""\n': "1: `f` is `async`",
    'def f(x: str) -> str:\n    """A."""\n    yield x\n': "1: `f` yields",
    'def F(x: str) -> str:\n    """A."""\n': "1: `F` can't be a component's name; write it in small letters",
    'def f(x: str) -> str:\n    """A."""\n' * 2: "3: there are two functions `f`",
    'def f() -> str:\n    """A.\n\n    Args:\n        y: Other.\n    """\n': "1: the docstring of `f` explains `y`",
    'def f(x: str) -> str:\n    """A."""\ndef f_batched(y): ...\n': "3: `f_batched` must take the arguments of `f`",
    "x = 1\n": "1: there is no component",
    "def f(:\n": "1: this is not Python",
    "\0": "1: this is not Python",
    "CATEGORY = 'Pictures'\n\ndef f(x: str) -> str:\n    '''A.'''": "1: `CATEGORY` must be one of Text, Picture",
    "__all__ = names()\n": "1: `__all__` must be a list of names",
    "from walkgraph.nodes import Pixel\ndef f(x: Pixel) -> str:\n    '''A.'''": "2: argument `x` uses `Pixel`, which",
}


@pytest.mark.parametrize(("text", "told"), FILES.items())
def test_a_mistake_of_a_file_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(tmp_path, text, head="")
    assert f"walkgraph_a/__init__.py:{told}" in str(caught.value)


def test_a_file_that_is_not_there_or_is_huge_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="can't be read"):
        declared(tmp_path / "none.py", "none.py", "none", "a")
    (tmp_path / "huge.py").write_bytes(b"#" * (1 << 21))
    with pytest.raises(Unreadable, match="more than 1 MiB"):
        declared(tmp_path / "huge.py", "huge.py", "huge", "a")


def test_deep_nesting_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="not Python"):
        read(tmp_path, "x = " + "(" * 5000, head="")


@pytest.mark.parametrize(
    ("decorator", "said"),
    [
        ("", False),
        ("@deterministic\n", True),
        ("@nodes.deterministic\n", True),
        ("@other\n@deterministic\n", True),
        ("@other\n", False),
    ],
)
def test_a_function_says_that_it_is_deterministic(tmp_path: Path, decorator: str, said: bool) -> None:
    found = read(tmp_path, f'{decorator}def f(a: str) -> str:\n    """A."""\n')["f"]
    assert found.signature.deterministic is said


def test_what_takes_a_seed_is_not_deterministic(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="`f` takes a seed, so it isn't deterministic; remove one of both"):
        read(tmp_path, '@deterministic\ndef f(a: str, *, seed: Seed) -> str:\n    """A."""\n')
