"""Models of plug-ins as operators: stacked batches equal single calls, weights from safetensors alone, and what a
folder can't make a worker do."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from walkgraph import wrap
from walkgraph.abi.calls import Call, CallFailed
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.adapters.adapting import adapted
from walkgraph.adapters.onnx_files import check_files
from walkgraph.adapters.pretrained import PretrainedNetwork
from walkgraph.adapters.reporting import Reporter
from walkgraph.components import families
from walkgraph.errors import InvalidInput, NotFound, Refused, WalkgraphError
from walkgraph.functions.reading import declared
from walkgraph.graph.document import Weights
from walkgraph.placement.sizes import find_sizes, weights_folder

CODE = '''
from typing import Annotated, NamedTuple
import torch
from torch import Tensor, nn
from walkgraph import wrap
from walkgraph.nodes import Pixels

class Found(NamedTuple):
    pixels: Pixels
    level: Annotated[Tensor, "scalar: float[c]"] | None

@wrap.module
class Mix(nn.Module):
    """Mixes channels."""
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.mix = nn.Linear(3, width)
        self.back = nn.Linear(width, 3)
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, pixels: Pixels, *, gain: float = 1.0, how: str = "well") -> Found:
        if how == "raise":
            raise ValueError("no")
        mixed = self.back(self.mix(pixels.movedim(1, -1))) * self.scale * gain
        if how == "sum":
            return Found(mixed.sum(), None)
        return Found(mixed.movedim(-1, 1), None if how == "absent" else mixed.mean((1, 2)))

embed = wrap.transformers(
    "FakeModel",
    inputs={"input_ids": "tokens: int[n]"},
    outputs={"last_hidden_state": "embeddings: float[n, c]"},
    description="Embeds.",
)
double = wrap.onnx(
    "double.onnx", inputs={"x": "latents: float[n]"}, outputs={"y": "latents: float[n]"}, description="Doubles."
)
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("plug")
    (folder / "plug_of_models.py").write_text(CODE)
    sys.path.insert(0, str(folder))
    yield "plug_of_models"
    sys.path.remove(str(folder))
    sys.modules.pop("plug_of_models", None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "weights"
    found.mkdir()
    return found


def state(width: int = 3) -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(1)
    shapes = {"mix.weight": (width, 3), "mix.bias": (width,), "back.weight": (3, width), "back.bias": (3,)}
    return {name: torch.randn(shape, generator=drawn) for name, shape in shapes.items()}


def load(
    module: str, name: str, folder: Path | None, random: tuple[str, int] | None = None, **options: Any
) -> Operator:
    context = LoadContext(
        device=torch.device("cpu"), dtype=torch.float32, folder=folder, shared={}, options=options, random=random
    )
    return adapted(module, name).load(context)


def call(inputs: Mapping[str, Any], **params: Any) -> Call:
    return Call(
        run="r", node="node", walk="w", step=0, use=0, iteration=(), inputs=dict(inputs),
        params={"gain": 1.0, "how": "well", **params}, states={}, seed=7,
    )  # fmt: skip


def run(operator: Operator, *calls: Call) -> list[dict[str, Any]]:
    with torch.inference_mode():
        return operator.forward(calls, None)  # type: ignore[arg-type]


# ── modules of torch ──


def test_its_weights_are_those_of_the_folder_and_a_batch_equals_single_calls(module: str, folder: Path) -> None:
    there = state(5)
    save_file({name: there[name] for name in list(there)[:2]}, folder / "one.safetensors")
    save_file({name: there[name] for name in list(there)[2:]}, folder / "two.safetensors")
    operator = load(module, "Mix", folder, width=5)
    calls = [call({"pixels": torch.randn(3, 4, 2)}, gain=2.0, width=5) for _ in range(3)]
    assert len({operator.bucket(one) for one in calls}) == 1
    together, alone = run(operator, *calls), [run(operator, one)[0] for one in calls]
    for one, other, given in zip(together, alone, calls, strict=True):
        plain = (
            torch.einsum("ij,jhw->ihw", there["mix.weight"], given.inputs["pixels"]) + there["mix.bias"][:, None, None]
        )
        plain = torch.einsum("ij,jhw->ihw", there["back.weight"], plain) + there["back.bias"][:, None, None]
        torch.testing.assert_close(one["pixels"], 2 * plain)
        torch.testing.assert_close(one["pixels"], other["pixels"])
        torch.testing.assert_close(one["level"], 2 * plain.mean((1, 2)))


def test_other_shapes_and_parameters_are_other_batches(module: str, folder: Path) -> None:
    save_file(state(), folder / "model.safetensors")
    operator = load(module, "Mix", folder)
    given = [
        call({"pixels": torch.zeros(3, 4, 2)}),
        call({"pixels": torch.zeros(3, 2, 4)}),
        call({"pixels": torch.zeros(3, 4, 2)}, gain=3.0),
    ]
    assert len({operator.bucket(one) for one in given}) == 3


def test_random_weights_follow_from_their_seed_alone(module: str) -> None:
    one, two, other = (load(module, "Mix", None, ("default", seed)) for seed in (1, 1, 2))
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    load(module, "Mix", None, ("default", 3))
    assert torch.equal(before, torch.random.get_rng_state())
    given = call({"pixels": torch.ones(3, 2, 2)})
    assert torch.equal(run(one, given)[0]["pixels"], run(two, given)[0]["pixels"])
    assert not torch.equal(run(one, given)[0]["pixels"], run(other, given)[0]["pixels"])
    with pytest.raises(Refused, match="needs weights"):
        load(module, "Mix", None)


WRONG = {
    "missing": ({"mix.bias": None}, "missing tensor `mix.bias`"),
    "unknown": ({"more": torch.zeros(1)}, "unknown tensor `more`"),
    "shape": ({"mix.bias": torch.zeros(4)}, r"`mix.bias` is \[4\], the module has \[3\]"),
    "kind": ({"mix.bias": torch.zeros(3, dtype=torch.int64)}, "`mix.bias` holds torch.int64"),
}


@pytest.mark.parametrize("which", WRONG)
def test_weights_that_do_not_fit_are_told(module: str, folder: Path, which: str) -> None:
    changed, message = WRONG[which]
    there = {name: value for name, value in {**state(), **changed}.items() if value is not None}
    save_file(there, folder / "model.safetensors")
    with pytest.raises(InvalidInput, match=message):
        load(module, "Mix", folder)


def test_what_a_module_raises_or_gives_wrong_is_told(module: str, folder: Path) -> None:
    save_file(state(), folder / "model.safetensors")
    operator = load(module, "Mix", folder)
    line = CODE.splitlines().index('            raise ValueError("no")') + 1
    with pytest.raises(CallFailed, match=rf"plug_of_models.py:{line}: ValueError: no"):
        run(operator, call({"pixels": torch.zeros(3, 2, 2)}, how="raise"))
    with pytest.raises(CallFailed, match="must have the batch in front") as told:
        run(operator, call({"pixels": torch.zeros(3, 2, 2)}, how="sum"))
    assert told.value.port == "pixels"
    assert "level" not in run(operator, call({"pixels": torch.zeros(3, 2, 2)}, how="absent"))[0]
    with pytest.raises(CallFailed, match="got nothing at `pixels`"):
        run(operator, call({}))


# ── what plans know ──


def test_plans_count_what_lies_in_the_folder(module: str, folder: Path) -> None:
    path = Path(sys.modules[module].__file__ or "") if module in sys.modules else None
    path = path or next(Path(one) / f"{module}.py" for one in sys.path if (Path(one) / f"{module}.py").is_file())
    made = declared(path, path.name, module, "plug")
    sizes = {**families(), **{one.component.weights or "": one.sizes for one in made.values() if one.sizes}}
    save_file(state(5), folder / "model.safetensors")
    (folder / "double.onnx").write_bytes(bytes(400))
    found = find_sizes(sizes, [folder.parent])
    [mix] = found(Weights(family="plug_mix", source="checkpoint:weights")).numbers.values()
    assert mix == sum(value.numel() for value in state(5).values())
    onnx = found(Weights(family="plug_double", source="checkpoint:weights"))
    assert onnx.part_bytes("weights", 2) == 400
    with pytest.raises(NotFound, match="is known once it is loaded"):
        found(Weights(family="plug_mix", source="random:default:0"))


PICKLES = ("pytorch_model.bin", "model.pt", "model.pt2", "model.pth", "last.ckpt", "x.torchscript")


@pytest.mark.parametrize("name", PICKLES)
def test_a_folder_of_pickles_is_refused_and_says_why(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(Refused, match=rf"`{name}` is .*never loaded; save the tensors as safetensors"):
        weights_folder("checkpoint:weights", [folder.parent])
    with pytest.raises(NotFound, match="there are no weights `other`"):
        weights_folder("checkpoint:other", [folder.parent])
    (folder / "model.safetensors").write_bytes(b"")
    assert weights_folder("checkpoint:weights", [folder.parent]) == folder


# ── transformers ──


class FakeModel(nn.Module):
    asked: Mapping[str, Any]

    @classmethod
    def from_pretrained(cls, folder: str, **asked: Any) -> nn.Module:
        made = cls()
        cls.asked = {"folder": folder, **asked}
        return made

    def forward(self, input_ids: torch.Tensor, return_dict: bool) -> Any:
        assert return_dict
        assert input_ids.dtype == torch.int64
        return types.SimpleNamespace(last_hidden_state=input_ids[..., None].float().expand(-1, -1, 2))


@pytest.fixture
def pretrained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = types.ModuleType("transformers")
    package.FakeModel = FakeModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", package)
    save_file(state(), folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "fake"}')
    return folder


def test_a_model_of_transformers_is_loaded_from_its_folder_alone(module: str, pretrained: Path) -> None:
    operator = load(module, "embed", pretrained)
    assert FakeModel.asked == {
        "folder": str(pretrained),
        "local_files_only": True,
        "trust_remote_code": False,
        "use_safetensors": True,
        "dtype": torch.float32,
        "attn_implementation": "sdpa",
    }
    calls = [call({"input_ids": torch.tensor([n, 1], dtype=torch.int32)}) for n in range(2)]
    found = run(operator, *calls)
    assert [one["last_hidden_state"].tolist() for one in found] == [
        [[0.0, 0.0], [1.0, 1.0]],
        [[1.0, 1.0], [1.0, 1.0]],
    ]


CODED = (
    {"auto_map": {"AutoModel": "evil--modeling.Evil"}},
    {"text_config": {"auto_map": {}}},
    {"parts": [{"auto_map": {}}]},
)


@pytest.mark.parametrize("config", CODED)
def test_a_config_that_names_code_is_refused(module: str, pretrained: Path, config: Any) -> None:
    (pretrained / "config.json").write_text(json.dumps(config))
    with pytest.raises(Refused, match="names code of its own"):
        load(module, "embed", pretrained)


@pytest.mark.parametrize("config", ["{", "[", "3", "\0", pytest.param("[" * 100_000, id="deep")])
def test_a_config_that_is_none_is_refused(module: str, pretrained: Path, config: str) -> None:
    (pretrained / "config.json").write_text(config)
    with pytest.raises(WalkgraphError, match=r"config\.json"):
        load(module, "embed", pretrained)


def test_what_else_a_folder_of_transformers_can_not_do(
    module: str, pretrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pretrained / "adapter_config.json").write_text('{"base_model_name_or_path": "somewhere/else"}')
    with pytest.raises(Refused, match="is an adapter of another model"):
        load(module, "embed", pretrained)
    (pretrained / "adapter_config.json").unlink()
    (pretrained / "model.safetensors").write_bytes(b"no")
    with pytest.raises(InvalidInput, match="not a safetensors file"):
        load(module, "embed", pretrained)
    (pretrained / "model.safetensors").unlink()
    with pytest.raises(NotFound, match="has no safetensors"):
        load(module, "embed", pretrained)
    with pytest.raises(Refused, match="needs a folder"):
        load(module, "embed", None, ("default", 0))
    monkeypatch.setitem(sys.modules, "transformers", None)  # type: ignore[arg-type]
    save_file(state(), pretrained / "model.safetensors")
    with pytest.raises(Refused, match="isn't installed in this environment"):
        load(module, "embed", pretrained)


def test_a_model_of_the_package_itself_gives_what_it_gives_alone(folder: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    plain = transformers.BertModel(config).eval()
    plain.save_pretrained(folder, safe_serialization=True)
    made = wrap.transformers(
        "BertModel",
        inputs={"input_ids": "tokens: int[n]"},
        outputs={"last_hidden_state": "embeddings: float[n, c]"},
        description="Embeds.",
    )
    (tmp_path / "plug.py").write_text(CODE.replace("FakeModel", "BertModel"))
    signature = declared(tmp_path / "plug.py", "plug.py", "plug", "plug")["embed"].signature
    context = LoadContext(device=torch.device("cpu"), dtype=torch.float32, folder=folder, shared={}, options={})
    operator = PretrainedNetwork(signature, made, Reporter("embed", tmp_path)).load(context)
    calls = [call({"input_ids": torch.tensor([n, 1, 5])}) for n in range(3)]
    for one, given in zip(run(operator, *calls), calls, strict=True):
        with torch.inference_mode():
            expected = plain(given.inputs["input_ids"][None]).last_hidden_state[0]
        torch.testing.assert_close(one["last_hidden_state"], expected)


# ── ONNX ──


def field(number: int, data: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def number(key: int, value: int) -> bytes:
    return varint(key << 3) + varint(value)


def tensor(location: str | bytes | None = None) -> bytes:
    """A tensor of one float, here or in another file."""
    said = number(1, 1) + number(2, 1) + field(8, b"two")
    if location is None:
        return said + field(9, np.float32(2).tobytes())
    name = location if isinstance(location, bytes) else location.encode()
    entries = [field(1, b"offset") + field(2, b"0"), field(1, b"location") + field(2, name)]
    return said + b"".join(field(13, one) for one in entries) + number(14, 1)


def model(initializer: bytes, extra: bytes = b"") -> bytes:
    """y = x * two, over `[batch, n]`."""

    def value(name: str) -> bytes:
        dims = field(1, field(2, b"batch")) + field(1, field(2, b"n"))
        return field(1, name.encode()) + field(2, field(1, number(1, 1) + field(2, dims)))

    node = field(1, b"x") + field(1, b"two") + field(2, b"y") + field(4, b"Mul")
    graph = field(1, node) + field(2, b"g") + field(5, initializer) + field(11, value("x")) + field(12, value("y"))
    return number(1, 8) + field(7, graph + extra) + field(8, number(2, 17))


def test_numbers_beside_the_file_are_found(folder: Path) -> None:
    (folder / "double.onnx").write_bytes(model(tensor("double.data")))
    with pytest.raises(InvalidInput, match=r"has numbers in `double\.data`, which is not in `weights`"):
        check_files(folder / "double.onnx")
    (folder / "double.data").write_bytes(np.float32(2).tobytes())
    check_files(folder / "double.onnx")
    (folder / "double.onnx").write_bytes(model(tensor()))
    check_files(folder / "double.onnx")


OUTSIDE = ("../secret", "/etc/passwd", "a/../../secret", "..", ".", "", "link", "sub/link", "a\0b", "//etc/passwd")


def nested(inner: bytes) -> dict[str, bytes]:
    """Places of a model that a tensor can hide in."""
    attribute = field(5, inner)
    graph = field(5, inner)
    return {
        "initializer": model(inner),
        "attribute": model(tensor(), field(1, field(5, attribute))),
        "attribute list": model(tensor(), field(1, field(5, field(10, inner)))),
        "branch": model(tensor(), field(1, field(5, field(6, graph)))),
        "sparse": model(tensor(), field(15, field(1, inner))),
        "function": model(tensor()) + field(25, field(7, field(5, attribute))),
        "value first": model(tensor(), field(5, field(13, field(2, inner) + field(1, b"location")))),
        "said twice": model(tensor(), field(5, field(13, field(1, b"a") + field(2, inner) + field(1, b"location")))),
        "training": model(tensor()) + field(20, field(1, graph)),
    }


@pytest.mark.parametrize("place", nested(b""))
@pytest.mark.parametrize("location", OUTSIDE)
def test_numbers_outside_the_folder_are_refused_wherever_they_hide(folder: Path, place: str, location: str) -> None:
    (folder.parent / "secret").write_bytes(b"2222")
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "sub" / "link").symlink_to("../../secret")
    bare = place in ("value first", "said twice")
    (folder / "double.onnx").write_bytes(nested(location.encode() if bare else tensor(location))[place])
    with pytest.raises(Refused, match="outside its folder"):
        check_files(folder / "double.onnx")


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x3a\xff\xff\xff\xff\x0f", b"\x3b", b"\x80" * 20, bytes(10) + b"\x07"]
)
def test_bytes_that_are_no_onnx_file_are_told(folder: Path, data: bytes) -> None:
    (folder / "double.onnx").write_bytes(data)
    with pytest.raises(InvalidInput, match="is no ONNX file"):
        check_files(folder / "double.onnx")


def test_deep_nesting_is_told(folder: Path) -> None:
    inner = b""
    for _ in range(200):
        inner = field(1, field(5, field(6, inner)))
    (folder / "double.onnx").write_bytes(field(7, inner))
    with pytest.raises(InvalidInput, match="is no ONNX file"):
        check_files(folder / "double.onnx")


class FakeSession:
    """The outputs of `onnxruntime` for the file above."""

    asked: list[Any]

    def __init__(self, path: str, options: Any, providers: list[str]) -> None:
        FakeSession.asked = [path, providers]

    def get_inputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="x", type="tensor(float)", shape=["batch", "n"])]

    def get_outputs(self) -> list[Any]:
        return [types.SimpleNamespace(name="y")]

    def run(self, wanted: list[str], feeds: Mapping[str, Any]) -> list[Any]:
        assert wanted == ["y"]
        return [feeds["x"] * np.float32(2)]


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("onnxruntime")
    package.SessionOptions = types.SimpleNamespace  # type: ignore[attr-defined]
    package.InferenceSession = FakeSession  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", package)


def doubled(module: str, folder: Path) -> None:
    (folder / "double.onnx").write_bytes(model(tensor()))
    operator = load(module, "double", folder)
    calls = [call({"x": torch.tensor([float(n), 1.0], dtype=torch.float64)}) for n in range(3)]
    assert len({operator.bucket(one) for one in calls}) == 1
    assert [one["y"].tolist() for one in run(operator, *calls)] == [[2.0 * n, 2.0] for n in range(3)]


@pytest.mark.usefixtures("runtime")
def test_an_onnx_file_is_run_in_batches(module: str, folder: Path) -> None:
    doubled(module, folder)
    assert FakeSession.asked == [str(folder / "double.onnx"), ["CPUExecutionProvider"]]


def test_an_onnx_file_is_run_by_onnxruntime(module: str, folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    doubled(module, folder)


@pytest.mark.usefixtures("runtime")
def test_an_onnx_file_that_is_not_what_was_declared_is_told(
    module: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match=r"has no file `double\.onnx`"):
        load(module, "double", folder)
    (folder / "double.onnx").write_bytes(model(tensor("../x")))
    with pytest.raises(Refused, match="outside its folder"):
        load(module, "double", folder)
    (folder / "double.onnx").write_bytes(model(tensor()))
    monkeypatch.setattr(FakeSession, "get_outputs", lambda self: [types.SimpleNamespace(name="z")])
    with pytest.raises(Refused, match="differ in `y`: its inputs are"):
        load(module, "double", folder)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # type: ignore[arg-type]
    with pytest.raises(Refused, match="isn't installed in this environment"):
        load(module, "double", folder)
