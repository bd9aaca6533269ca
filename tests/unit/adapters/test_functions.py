"""Functions as operators: values in and out, mistakes at their ports, exceptions with their place and no secrets."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from PIL import Image

from walkgraph.abi.calls import Call, CallFailed
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.adapters.adapting import adapted
from walkgraph.errors import Refused

CODE = '''
from typing import Annotated, NamedTuple, TypedDict
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from walkgraph.nodes import BadInput, Between, Pixels, Seed, deterministic

calls = []

def flip(picture: Image.Image) -> Image.Image:
    """A."""
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)

Wave = Annotated[np.ndarray, "waveform: float[n]"]

def louder(wave: Wave, *, gain: float = 2) -> Wave:
    """A."""
    assert isinstance(gain, float)
    return wave.astype(np.float64) * gain

@deterministic
def softer(wave: Wave) -> Wave:
    """A."""
    return wave / 2

class Said(NamedTuple):
    text: str
    count: int | None

def say(text: str, times: int, loud: bool, share: float, rest: list[str] | None = None) -> Said:
    """A."""
    return Said(f"{text} {times} {loud} {share} {rest}", None if rest is None else len(rest))

def seeded(*, seed: Seed) -> int:
    """A."""
    return seed

def total(pixels: Pixels, *, scale: float = 1.0) -> float:
    """A."""
    calls.append("total")
    return pixels.sum() * scale

def total_batched(pixels, *, scale):
    calls.append(len(pixels))
    return [one * scale for one in torch.stack(pixels).sum((1, 2, 3)).tolist()]

class Both(TypedDict):
    pixels: Pixels
    mask: Annotated[Tensor, "pixels: float[1, h, w]"]

def both(pixels: Pixels, *, how: str = "well") -> Both:
    """A."""
    mask = torch.ones(1, *pixels.shape[1:])
    return {
        "well": {"pixels": pixels, "mask": mask},
        "dims": {"pixels": pixels, "mask": mask[0]},
        "size": {"pixels": pixels, "mask": mask[:, :1]},
        "ints": {"pixels": pixels.long(), "mask": mask},
        "more": {"pixels": pixels, "mask": mask, "left": 1},
        "less": {"pixels": pixels},
        "text": "no",
        "kind": {"pixels": "no", "mask": mask},
    }[how]

def wrong(text: str, *, how: str = "value") -> str:
    """A."""
    match how:
        case "value":
            raise ValueError(f"it is {text}")
        case "bad":
            raise BadInput("send a word")
        case "exit":
            raise SystemExit(3)
        case "inside":
            return np.zeros(3)[text]
        case "nothing":
            return None

def numbers(*, how: str = "list") -> list[int]:
    """A."""
    return {"list": [1, np.int64(2), torch.tensor(3)], "one": 1, "float": [1.5]}[how]

def changed(wave: Wave, pixels: Pixels, more: list[Pixels]) -> float:
    """A."""
    wave *= 0
    pixels.zero_()
    more[0].zero_()
    return 1.0

def memory(*, how: str = "torch") -> str:
    """A."""
    raise torch.OutOfMemoryError("full") if how == "torch" else MemoryError
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("plug")
    (folder / "plug_of_functions.py").write_text(CODE)
    (folder / "plug_broken").mkdir()
    (folder / "plug_broken" / "__init__.py").write_text("\n\nimport there_is_no_such_module\n")
    (folder / "plug_unread").mkdir()
    (folder / "plug_unread" / "__init__.py").write_text("def f(x):\n    return x\n")
    sys.path.insert(0, str(folder))
    yield "plug_of_functions"
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.startswith("plug_")]:
        del sys.modules[name]


def context() -> LoadContext:
    return LoadContext(device=torch.device("cpu"), dtype=torch.float32, folder=None, shared={}, options={})


def loaded(module: str, name: str) -> Operator:
    return adapted(module, name).load(context())


def call(inputs: Mapping[str, Any], params: Mapping[str, Any] | None = None, run: str = "r") -> Call:
    return Call(
        run=run, node="node", walk="w", step=0, use=0, iteration=(), inputs=dict(inputs), params=params or {},
        states={}, seed=77,
    )  # fmt: skip


def run(module: str, name: str, inputs: Mapping[str, Any], **params: Any) -> dict[str, Any]:
    [found] = loaded(module, name).forward([call(inputs, params)], None)  # type: ignore[arg-type]
    return found


def png(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG")
    return data.getvalue()


def test_pictures_are_pillows(module: str) -> None:
    picture = Image.new("RGB", (2, 1), "black")
    picture.putpixel((0, 0), (255, 0, 0))
    found = Image.open(io.BytesIO(run(module, "flip", {"picture": png(picture)})["image"]))
    assert [found.getpixel((x, 0)) for x in range(2)] == [(0, 0, 0), (255, 0, 0)]


def test_bytes_that_are_no_picture_are_the_clients_fault(module: str) -> None:
    with pytest.raises(CallFailed, match="PNG") as told:
        run(module, "flip", {"picture": b"no"})
    assert (told.value.port, told.value.code) == ("picture", "invalid_input")


def test_arrays_are_numpys(module: str) -> None:
    found = run(module, "louder", {"wave": torch.tensor([1.0, -2.0])}, gain=3)["waveform"]
    assert found.dtype == torch.float32
    assert found.tolist() == [3.0, -6.0]


def test_what_a_function_does_to_its_arguments_is_its_own(module: str) -> None:
    given = {"wave": torch.ones(2), "pixels": torch.ones(3, 1, 1), "more": [torch.ones(3, 1, 1)]}
    assert run(module, "changed", given) == {"scalar": 1.0}
    assert given["wave"].tolist() == [1.0, 1.0]
    assert given["pixels"].sum() == given["more"][0].sum() == 3


def test_an_array_of_bfloat16_is_of_float32(module: str) -> None:
    found = run(module, "louder", {"wave": torch.tensor([1.5], dtype=torch.bfloat16)}, gain=2)
    assert found["waveform"].tolist() == [3.0]


def test_plain_values_and_an_absent_output(module: str) -> None:
    given = {"text": "a", "times": torch.tensor([2]), "loud": 1, "share": 3}
    assert run(module, "say", given) == {"text": "a 2 True 3.0 None"}
    assert run(module, "say", {**given, "rest": ["b", "c"]}) == {"text": "a 2 True 3.0 ['b', 'c']", "count": 2}


def test_lists_of_numbers_of_several_libraries(module: str) -> None:
    assert run(module, "numbers", {}, how="list") == {"scalar": [1, 2, 3]}
    with pytest.raises(CallFailed, match="must return a list as `scalar`, and returned a `int`"):
        run(module, "numbers", {}, how="one")
    with pytest.raises(CallFailed, match="must return a whole number as `scalar`, and returned a `float`"):
        run(module, "numbers", {}, how="float")


def test_a_value_of_another_kind_is_told_at_its_port(module: str) -> None:
    with pytest.raises(CallFailed, match=r"takes a number at `share`") as told:
        run(module, "say", {"text": "a", "times": 1, "loud": True, "share": "x"})
    assert told.value.port == "share"
    with pytest.raises(CallFailed, match=r"got nothing at `text`"):
        run(module, "say", {})


def test_the_seed_is_the_calls(module: str) -> None:
    assert run(module, "seeded", {}) == {"scalar": 77}


# ── batches ──


def test_a_batched_form_gives_what_single_calls_give(module: str) -> None:
    operator = loaded(module, "total")
    sys.modules[module].calls.clear()
    given = [call({"pixels": torch.full((3, 2, 2), float(n))}, {"scale": 2}, run=str(n)) for n in range(3)]
    assert len({operator.bucket(one) for one in given}) == 1
    together = operator.forward(given, None)  # type: ignore[arg-type]
    alone = [operator.forward([one], None)[0] for one in given]  # type: ignore[arg-type]
    assert together == alone == [{"scalar": 0.0}, {"scalar": 24.0}, {"scalar": 48.0}]
    assert sys.modules[module].calls == [3, "total", "total", "total"]


def test_calls_of_other_shapes_or_parameters_are_batches_of_their_own(module: str) -> None:
    operator = loaded(module, "total")
    given = [
        call({"pixels": torch.zeros(3, 2, 2)}, {"scale": 1.0}),
        call({"pixels": torch.zeros(3, 2, 3)}, {"scale": 1.0}),
        call({"pixels": torch.zeros(3, 2, 2)}, {"scale": 2.0}),
    ]
    assert len({operator.bucket(one) for one in given}) == 3


def test_without_a_batched_form_each_call_is_alone(module: str) -> None:
    operator = loaded(module, "seeded")
    assert operator.bucket(call({}, run="a")) != operator.bucket(call({}, run="b"))


# ── mistakes ──

WRONG = {
    "dims": ("mask", "must return `pixels: float[1, h, w]` as `mask`, and returned a tensor of float [2, 4]"),
    "size": ("mask", "and returned a tensor of float [1, 1, 4]"),
    "ints": ("pixels", "must return `pixels: float[3, h, w]` as `pixels`, and returned a tensor of int [3, 2, 4]"),
    "less": ("mask", "must return a `torch.Tensor` as `mask`, and returned None; where it may be absent"),
    "more": (None, "returned `left`, which its return type doesn't have"),
    "text": (None, "must return `pixels`, `mask`, as its return type says, and gave a `str`"),
    "kind": ("pixels", "must return a `torch.Tensor` as `pixels`, and returned a `str`"),
}


@pytest.mark.parametrize("how", WRONG)
def test_what_its_own_hints_do_not_allow_is_told_at_its_port(module: str, how: str) -> None:
    port, message = WRONG[how]
    with pytest.raises(CallFailed) as told:
        run(module, "both", {"pixels": torch.zeros(3, 2, 4)}, how=how)
    assert (told.value.port, told.value.code) == (port, "node_error")
    assert message in str(told.value)


def test_what_its_hints_allow_passes(module: str) -> None:
    assert set(run(module, "both", {"pixels": torch.zeros(3, 2, 4)}, how="well")) == {"pixels", "mask"}


def test_an_exception_is_told_with_its_line_and_logged_whole(module: str, caplog: pytest.LogCaptureFixture) -> None:
    line = CODE.splitlines().index('            raise ValueError(f"it is {text}")') + 1
    with caplog.at_level(logging.ERROR), pytest.raises(CallFailed) as told:
        run(module, "wrong", {"text": "bad"}, how="value")
    assert str(told.value) == f"plug_of_functions.py:{line}: ValueError: it is bad"
    assert "Traceback" in caplog.text
    assert "it is bad" in caplog.text


def test_an_exception_below_names_the_line_of_its_own_file(module: str) -> None:
    line = CODE.splitlines().index("            return np.zeros(3)[text]") + 1
    with pytest.raises(CallFailed, match=rf"plug_of_functions.py:{line}: IndexError: "):
        run(module, "wrong", {"text": "bad"}, how="inside")


def test_an_exit_ends_the_call_and_not_the_worker(module: str) -> None:
    with pytest.raises(CallFailed, match="SystemExit: 3"):
        run(module, "wrong", {"text": "bad"}, how="exit")


def test_bad_input_is_the_clients_fault(module: str) -> None:
    with pytest.raises(CallFailed, match="send a word") as told:
        run(module, "wrong", {"text": "bad"}, how="bad")
    assert told.value.code == "invalid_input"


def test_nothing_where_something_is_due(module: str) -> None:
    with pytest.raises(CallFailed, match="must return text"):
        run(module, "wrong", {"text": "bad"}, how="nothing")


def test_secrets_stay_out_of_the_message(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_API_TOKEN", "hush-hush-1234")
    monkeypatch.setenv("WALKGRAPH_TOKEN", "a-token-of-the-service")
    with pytest.raises(CallFailed) as told:
        run(module, "wrong", {"text": "hush-hush-1234 a-token-of-the-service bearer abc"}, how="value")
    assert str(told.value).endswith("ValueError: it is *** *** bearer ***")
    with pytest.raises(CallFailed) as told:
        run(module, "wrong", {"text": "x" * 5000}, how="value")
    assert len(str(told.value)) < 400


def test_paths_of_the_machine_stay_out_of_the_message(module: str) -> None:
    given = "no '/srv/models/of me/x.bin' nor /etc/ssl/key.pem: a/b/c at https://there/a/b 1/2"
    with pytest.raises(CallFailed) as told:
        run(module, "wrong", {"text": given}, how="value")
    assert "/srv" not in str(told.value)
    assert "/etc" not in str(told.value)
    assert "key.pem: a/b/c at https://there/a/b 1/2" in str(told.value)


@pytest.mark.parametrize(("how", "kind"), [("torch", torch.OutOfMemoryError), ("host", MemoryError)])
def test_memory_that_runs_out_is_the_engines(module: str, how: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        run(module, "memory", {}, how=how)


# ── loading ──


def test_a_module_that_can_not_be_imported_is_told_with_its_line(module: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(Refused) as told:
        adapted("plug_broken", "f")
    assert "plug_broken/__init__.py:3: ModuleNotFoundError: No module named" in str(told.value)
    assert "Traceback" in caplog.text


def test_a_function_that_is_gone_or_unreadable_is_told(module: str) -> None:
    with pytest.raises(Refused, match="AttributeError"):
        adapted(module, "gone")
    with pytest.raises(Refused, match=r"plug_unread/__init__.py:1: argument `x` has no type"):
        adapted("plug_unread", "f").load(context())
    with pytest.raises(Refused, match="neither an operator, a function nor a wrapped model"):
        adapted(module, "calls")


def test_an_operators_class_stays_itself(module: str) -> None:
    assert adapted("walkgraph.models.synthetic.operators", "Add").load(context()) is not None


def test_only_a_function_that_says_so_is_pure(module: str) -> None:
    softer, louder = loaded(module, "softer"), loaded(module, "louder")
    assert (softer.pure, louder.pure) == (True, False)
    (made,) = softer.forward([call({"wave": torch.ones(2)})], None)  # type: ignore[arg-type]
    assert next(iter(made.values())).tolist() == [0.5, 0.5]
