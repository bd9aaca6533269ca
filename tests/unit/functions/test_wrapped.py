"""Models of a plug-in's file as components, and what is told of those that can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documents import blocks_of
from walkgraph import wrap
from walkgraph.functions.reading import Declared, declared
from walkgraph.functions.source import Unreadable
from walkgraph.graph.catalogue import Param

HEAD = """
from typing import Annotated
import torch
from torch import Tensor, nn
from walkgraph import wrap
from walkgraph.nodes import Between, Pixels
"""
LINES = HEAD.count("\n")
MODULE = '''
@wrap.module
class ReduceNoise(nn.Module):
    """Takes noise out of pictures.

    Args:
        width: Channels inside.
    """
    def __init__(self, width: Annotated[int, Between(1, 512)] = 16, *, deep: bool = False) -> None:
        super().__init__()

    def forward(self, pixels: Pixels, mask: Annotated[Tensor, "pixels: float[1, h, w]"] | None = None, *,
                strength: float = 1.0) -> Pixels:
        return pixels
'''


def read(tmp_path: Path, text: str) -> dict[str, Declared]:
    path = tmp_path / "__init__.py"
    path.write_text(HEAD + text)
    return declared(path, "walkgraph_a/__init__.py", "walkgraph_a", "a")


def test_a_module_is_a_component_with_weights_of_its_own(tmp_path: Path) -> None:
    [(attribute, found)] = read(tmp_path, MODULE).items()
    made = found.component
    assert (attribute, made.name, made.network) == ("ReduceNoise", "a.reduce_noise", "walkgraph_a:ReduceNoise")
    assert (made.weights, made.host, made.category) == ("a_reduce_noise", False, "Model")
    assert made.description == "Takes noise out of pictures."
    assert [(port.name, port.optional) for port in made.inputs] == [("pixels", False), ("mask", True)]
    assert made.params == {
        "width": Param(type="integer", default=16, min=1, max=512, description="Channels inside."),
        "deep": Param(type="boolean", default=False),
        "strength": Param(type="number", default=1.0),
    }
    assert found.wrapped is not None
    assert list(found.wrapped.options) == ["width", "deep"]
    assert found.sizes is not None
    assert found.sizes.components == {"a.reduce_noise": ("weights",)}


def test_the_stem_of_its_files_may_be_named(tmp_path: Path) -> None:
    [found] = read(tmp_path, MODULE.replace("@wrap.module", "@wrap.module(files='unet')")).values()
    assert found.sizes is not None
    assert [part.stem for part in found.sizes.parts.values()] == ["unet"]


ASSIGNED = """
embed = wrap.transformers(
    "BertModel",
    inputs={"input_ids": "tokens: int[n]"},
    outputs={"last_hidden_state": "embeddings: float[n, c]"},
    description="Embeds text",
)
detect = wrap.onnx(
    "cats.onnx", inputs={"x": "pixels: float[3, h, w]"}, outputs={"y": "scalar: float[n]"}, description="Finds cats."
)
"""


def test_what_is_assigned_is_a_component(tmp_path: Path) -> None:
    found = read(tmp_path, ASSIGNED)
    assert {name: one.component.name for name, one in found.items()} == {"embed": "a.embed", "detect": "a.detect"}
    assert found["embed"].component.description == "Embeds text."
    assert found["embed"].wrapped is not None
    assert found["embed"].wrapped.made == wrap.Transformers(
        model="BertModel",
        inputs={"input_ids": "tokens: int[n]"},
        outputs={"last_hidden_state": "embeddings: float[n, c]"},
        description="Embeds text",
    )
    assert found["detect"].sizes is not None
    assert [part.file for part in found["detect"].sizes.parts.values()] == ["cats.onnx"]
    assert [str(port.type) for port in found["detect"].component.outputs] == ["scalar: float[n]"]


PORTS = "inputs={'x': 'pixels: float[3]'}, outputs={'y': 'flag: bool'}, description='A'"


def onnx(first: str, rest: str = PORTS) -> str:
    return f"a = wrap.onnx({first}, {rest})\n"


MISTAKES = {
    onnx("'a.pt2'"): "`a.pt2` is an exported program of torch: loading it runs code that is in the file",
    onnx("'a.pt'"): "`a.pt` is a pickle of torch",
    onnx("'model.TorchScript'"): "is a TorchScript program",
    onnx("'a.safetensors'"): "doesn't end with `.onnx`",
    onnx("'../a.onnx'"): "`../a.onnx` is no name of a file",
    onnx("'/a.onnx'"): "is no name of a file",
    onnx("FILE"): "its arguments must be written out, as the file is only read",
    onnx("'a.onnx'", "inputs={}, outputs={'y': 'flag: bool'}, description='A'"): "`a` needs `inputs`, `outputs`",
    onnx("'a.onnx'", "inputs={'x': 'pixels: float[3]'}, outputs={'y': 'flag: bool'}"): "missing 1 required keyword",
    onnx("'a.onnx'", "inputs={'x': 'pixel'}, outputs={'y': 'flag: bool'}, description='A'"): "`x` has no port type",
    onnx("'a.onnx'", "inputs={'x': 'text: str'}, outputs={'y': 'flag: bool'}, description='A'"): "`x` is `text: str`",
    onnx("'a.onnx'", "inputs={'x y': 'flag: bool'}, outputs={'y': 'flag: bool'}, description='A'"): "must be a name",
    ASSIGNED.replace("BertModel", "bert-base"): "`bert-base` is no name of a class",
    ASSIGNED.replace("description=\"Embeds text\"", "description='A', attention='flash'"): "`sdpa` or `eager`",
    MODULE.replace("(nn.Module)", "(Thing)"): "`ReduceNoise` is wrapped and is no `torch.nn.Module`",
    MODULE.replace("def forward", "def backward"): "`ReduceNoise` has no `forward`",
    MODULE.replace("-> Pixels", "-> str"): "`text` of `ReduceNoise` is no tensor",
    MODULE.replace("Takes noise out of pictures.", "").replace("width: Channels inside.", ""): "has no docstring",
    MODULE.replace("strength:", "width:"): "`ReduceNoise` has `width` in `__init__` and in `forward`",
    MODULE.replace("*, deep: bool = False", "**more"): "`__init__` takes `*` or `**` arguments",
    MODULE.replace("deep: bool = False", "deep=False"): "argument `deep` of `__init__` has no type",
    MODULE.replace("@wrap.module", "@wrap.module(files='a.bin')"): "`a.bin` is a pickle of torch",
    MODULE.replace("@wrap.module", "@wrap.module(file='a')"): "can't be called like this",
    f"{MODULE}def reduce_noise(x: str) -> str:\n    '''A.'''\n": "its name is taken",
}  # fmt: skip


@pytest.mark.parametrize(("text", "told"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_a_mistake_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith("walkgraph_a/__init__.py:")
    assert told in str(caught.value)


@pytest.mark.parametrize("name", ["a.pt", "a.PTH", "pytorch_model.bin", "a.ckpt", "a.pkl", "a.pt2", "a.ts"])
def test_formats_that_run_code_are_told_by_their_names(name: str) -> None:
    assert name in (wrap.refused(name) or "")
    assert wrap.refused("a.safetensors") is wrap.refused("a.onnx") is None


PAGES = {"own_model.md": ["Denoise", "embed", "detect"], "ten_minutes.md": ["soften", "soften"]}


@pytest.mark.parametrize(("page", "names"), PAGES.items())
def test_the_pages_show_what_can_be_read(repository: Path, tmp_path: Path, page: str, names: list[str]) -> None:
    blocks = blocks_of(page, (repository / "docs" / "extending" / page).read_text())
    found: list[str] = []
    for block in blocks:
        if block.file is not None:
            (tmp_path / "shown.py").write_text(block.code)
            found += declared(tmp_path / "shown.py", block.file, "shown", "photo")
    assert found == names
