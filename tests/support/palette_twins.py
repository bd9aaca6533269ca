"""Naive twins of the small components: plain Python on texts, numbers, lists and numpy arrays."""

from __future__ import annotations

import importlib
import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.unit.engine.plans import call
from walkgraph.abi.calls import CallFailed
from walkgraph.abi.operator import LoadContext, Operator
from walkgraph.components import catalogue

Values = Mapping[str, Any]
Twin = Callable[[Values, Values], dict[str, Any]]
"""(parameters, inputs by port) -> outputs by port."""


class WrongInput(Exception):
    """The component ends the run as `invalid_input`."""


def expected(component: str, params: Values, inputs: Values) -> dict[str, Any]:
    """The outputs of a component; raises WrongInput."""
    defaults = {name: one.default for name, one in catalogue()[component].params.items()}
    return TWINS[component]({**defaults, **params}, inputs)


def served(component: str, params: Values, inputs: Values, seed: int = 0) -> dict[str, Any]:
    """The outputs of a component's operator; raises WrongInput where it ends the run so."""
    declared = catalogue()[component]
    defaults = {name: one.default for name, one in declared.params.items() if one.default is not None}
    operator = _loaded(component, tuple(sorted(params.items())))
    values = {port: _value(value) for port, value in inputs.items()}
    try:
        [found] = operator.forward([call("node", values, draws=seed, **{**defaults, **params})], cast(Any, None))
    except CallFailed as failed:
        if failed.code != "invalid_input":
            raise
        raise WrongInput(str(failed)) from None
    return found


@lru_cache(maxsize=256)
def _loaded(component: str, params: tuple[tuple[str, Any], ...]) -> Operator:
    module, _, name = str(catalogue()[component].network).partition(":")
    operator = getattr(importlib.import_module(module), name)
    options = {key: value for key, value in params if key in operator.options}
    cpu = torch.device("cpu")
    return operator.load(LoadContext(device=cpu, dtype=torch.float32, folder=None, shared={}, options=options))


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(one) for one in value]
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def agree(component: str, params: Values, inputs: Values) -> None:
    """The operator gives what its twin gives, or both end the run."""
    try:
        wanted = expected(component, params, inputs)
    except WrongInput:
        with pytest.raises(WrongInput):
            served(component, params, inputs)
        return
    found = served(component, params, inputs)
    assert found.keys() == wanted.keys()
    for port, value in wanted.items():
        assert alike(found[port], value), f"`{port}` of `{component}` is {found[port]!r}, and should be {value!r}"


def alike(given: Any, wanted: Any) -> bool:
    """Equal values: tensors and arrays of one shape, numbers to six digits, flags and texts exactly."""
    if isinstance(wanted, np.ndarray):
        if not isinstance(given, torch.Tensor) or tuple(given.shape) != wanted.shape:
            return False
        return bool(np.allclose(given.double().numpy(), wanted.astype(np.float64), rtol=1e-5, atol=1e-6))
    if isinstance(wanted, list):
        return (
            isinstance(given, list | tuple)
            and len(given) == len(wanted)
            and all(alike(mine, other) for mine, other in zip(given, wanted, strict=True))
        )
    if isinstance(wanted, bool) or isinstance(given, bool) or isinstance(wanted, str):
        return type(given) is type(wanted) and given == wanted
    return isinstance(given, int | float) and math.isclose(given, wanted, rel_tol=1e-6, abs_tol=1e-9)


def worded(value: Any) -> str:
    """A value as a template writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)


# ── texts ───────────────────────────────────────────────────────────────────────────────────────


def _template(params: Values, inputs: Values) -> dict[str, Any]:
    text, out, i = params["template"], "", 0
    while i < len(text):
        if text[i : i + 2] in ("{{", "}}"):
            out, i = out + text[i], i + 2
        elif text[i] == "{":
            end = text.index("}", i)
            name = text[i + 1 : end].split(":")[0].strip().rstrip("?").strip()
            out, i = out + (worded(inputs[name]) if name in inputs else ""), end + 1
        else:
            out, i = out + text[i], i + 1
    return {"text": out}


def _join(params: Values, inputs: Values) -> dict[str, Any]:
    out = ""
    for i, one in enumerate(inputs["texts"]):
        out += (params["separator"] if i else "") + one
    return {"text": out}


def _split(params: Values, inputs: Values) -> dict[str, Any]:
    text, separator = inputs["text"], params["separator"]
    found, piece, i = [], "", 0
    while i < len(text):
        at = (text[i].isspace() and text[i]) if not separator else (separator if text.startswith(separator, i) else "")
        if at:
            found.append(piece)
            piece, i = "", i + len(at)
        else:
            piece, i = piece + text[i], i + 1
    found.append(piece)
    return {"texts": found if params["keep_empty"] and separator else [one for one in found if one]}


def _extract(params: Values, inputs: Values) -> dict[str, Any]:
    found = [m.group(params["group"]) for m in re.finditer(params["pattern"], inputs["text"], re.ASCII)]
    found = [one for one in found if one is not None]
    return {"texts": found, "found": bool(found), **({"text": found[0]} if found else {})}


def _replace(params: Values, inputs: Values) -> dict[str, Any]:
    find, put = params["find"], params["replacement"]
    if params["regex"]:
        return {"text": re.sub(find, put, inputs["text"], flags=re.ASCII)}
    pieces = _split({"separator": find, "keep_empty": True}, inputs)["texts"]
    return _join({"separator": put}, {"texts": pieces})


def _similarity(params: Values, inputs: Values) -> dict[str, Any]:
    def cut(text: str) -> list[str]:
        text, size = text.casefold() if params["ignore_case"] else text, params["letters"]
        return [text[at : at + size] for at in range(len(text) - size + 1)] or [text]

    one, other, shared = cut(inputs["a"]), cut(inputs["b"]), 0
    count = len(one) + len(other)
    for piece in one:
        if piece in other:
            other.remove(piece)
            shared += 1
    return {"similarity": 2 * shared / count}


def _trim(params: Values, inputs: Values) -> dict[str, Any]:
    left = list(inputs["text"][: params["longest"]] if params["longest"] else inputs["text"])

    def goes(character: str) -> bool:
        return character in params["characters"] if params["characters"] else character.isspace()

    while params["sides"] in ("both", "start") and left and goes(left[0]):
        del left[0]
    while params["sides"] in ("both", "end") and left and goes(left[-1]):
        del left[-1]
    return {"text": "".join(left)}


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, float) and value == int(value):
        return int(value)
    return value


def _build(params: Values, inputs: Values) -> dict[str, Any]:
    names = [one.split(":")[0].strip().rstrip("?") for one in params["ports"].split(",")]
    nested = params["nested"].split(",")
    found = {
        name: json.loads(inputs[name]) if name in nested else _plain(inputs[name]) for name in names if name in inputs
    }
    return {"text": json.dumps(found, ensure_ascii=False, separators=(",", ":"))}


def _read(params: Values, inputs: Values) -> dict[str, Any]:
    text = inputs["text"]
    if params["search"]:
        starts = [i for i, one in enumerate(text) if one in "[{"]
        spans = ((i, j) for i in starts for j in range(len(text), i, -1))
    else:
        spans = iter([(0, len(text))])
    for i, j in spans:
        try:
            return {"text": json.dumps(json.loads(text[i:j]), ensure_ascii=False, separators=(",", ":"))}
        except ValueError:
            continue
    raise WrongInput


def _pick(params: Values, inputs: Values) -> dict[str, Any]:
    try:
        value = json.loads(inputs["text"])
    except ValueError:
        raise WrongInput from None
    for step in re.findall(r"[A-Za-z_]\w*|-?\d+", params["path"]):
        try:
            if isinstance(value, str):
                raise TypeError
            value = value[int(step) if step.lstrip("-").isdigit() else step]
        except (TypeError, KeyError, IndexError):
            if params["missing"] == "absent":
                return {}
            raise WrongInput from None
    kinds = {"scalar": (int, float), "flag": bool, "list of text": list, "text": object}
    if not isinstance(value, kinds[params["type"]]) or (params["type"] == "scalar" and isinstance(value, bool)):
        raise WrongInput

    def text(one: Any) -> str:
        return one if isinstance(one, str) else json.dumps(one, ensure_ascii=False, separators=(",", ":"))

    if params["type"] == "text":
        return {"value": text(value)}
    return {"value": [text(one) for one in value] if isinstance(value, list) else value}


# ── numbers ─────────────────────────────────────────────────────────────────────────────────────

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "power": lambda a, b: a**b,
    "minimum": np.minimum,
    "maximum": np.maximum,
}


def _arithmetic(params: Values, inputs: Values) -> dict[str, Any]:
    a, b = inputs["a"], inputs.get("b", params["number"])
    operation = params["operation"]
    if operation in ("divide", "floor_divide", "remainder") and np.any(np.asarray(b) == 0):
        raise WrongInput
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        try:
            return {"result": _OPERATIONS[operation](np.asarray(a), np.asarray(b))}
        except ValueError:
            raise WrongInput from None
    try:
        found = _OPERATIONS[operation](a, b)
    except (OverflowError, ZeroDivisionError):
        raise WrongInput from None
    if isinstance(found, complex) or (isinstance(found, int) and not -(2**63) <= found < 2**63):
        raise WrongInput
    return {"result": found if isinstance(found, int | float) else found.item()}


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "less": lambda a, b: a < b,
    "at_most": lambda a, b: a <= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "at_least": lambda a, b: a >= b,
    "more": lambda a, b: a > b,
}


def _compare(params: Values, inputs: Values) -> dict[str, Any]:
    return {"flag": _COMPARED[params["comparison"]](inputs["a"], inputs.get("b", params["number"]))}


def _statistics(params: Values, inputs: Values) -> dict[str, Any]:
    values = [float(one) for one in np.asarray(inputs["values"]).flatten()]
    if not values:
        raise WrongInput
    low, high, mean = min(values), max(values), sum(values) / len(values)
    counts = [0] * params["bins"]
    for one in values:
        place = int((one - low) / (high - low) * params["bins"]) if high > low else 0
        counts[min(place, params["bins"] - 1)] += 1
    std = math.sqrt(sum((one - mean) ** 2 for one in values) / len(values))
    places = {"min_at": values.index(low), "max_at": values.index(high)}
    return {"mean": mean, "min": low, "max": high, **places, "std": std, "histogram": np.array(counts)}


def _cast(params: Values, inputs: Values) -> dict[str, Any]:
    value, to = inputs["value"], params["to"]
    rounds = {"truncate": math.trunc, "nearest": round, "down": math.floor, "up": math.ceil}[params["rounding"]]
    dtype: Callable[[Any], Any] = float if "float" in to else (bool if to.startswith("flag") else rounds)
    if to == "text":
        if isinstance(value, np.ndarray):
            raise WrongInput
        return {"value": worded(value)}
    if to.startswith("tensor"):
        array = np.asarray(value)
        return {"value": np.array([dtype(one) for one in array.flatten().tolist()]).reshape(array.shape)}
    if isinstance(value, np.ndarray) and value.size != 1:
        raise WrongInput
    return {"value": dtype(np.asarray(value).reshape(()).item())}


def _shape(params: Values, inputs: Values) -> dict[str, Any]:
    value = np.asarray(inputs["value"])
    if not -value.ndim <= params["axis"] < value.ndim:
        raise WrongInput
    return {"sizes": np.array(value.shape), "size": value.shape[params["axis"]], "count": value.size}


def _single(value: Any, to: str) -> Any:
    if not to.startswith(("scalar", "flag")):
        return np.asarray(value)
    if np.asarray(value).size != 1:
        raise WrongInput
    return np.asarray(value).reshape(()).item()


def _slice(params: Values, inputs: Values) -> dict[str, Any]:
    values, index = np.asarray(inputs["values"]), inputs.get("index", params["index"])
    if not values.ndim or not -len(values) <= index < len(values):
        raise WrongInput
    return {"value": _single(values[index], params["to"])}


def _stack(params: Values, inputs: Values) -> dict[str, Any]:
    names = [one.split(":")[0].strip().rstrip("?") for one in params["ports"].split(",")]
    values = [np.asarray(inputs[name]) for name in names if name in inputs]
    try:
        return {"values": (np.stack if params["how"] == "stack" else np.concatenate)(values, params["axis"])}
    except ValueError:  # an AxisError too
        raise WrongInput from None


def _unstack(params: Values, inputs: Values) -> dict[str, Any]:
    values, axis = np.asarray(inputs["values"]), params["axis"]
    if not -values.ndim <= axis < values.ndim:
        raise WrongInput
    return {"items": [_single(values.take(i, axis), params["to"]) for i in range(values.shape[axis])]}


def _reshape(params: Values, inputs: Values) -> dict[str, Any]:
    sizes = [int(one) for one in params["shape"].split(",")] if params["shape"].strip() else []
    try:
        return {"value": np.asarray(inputs["value"]).reshape(sizes)}
    except ValueError:
        raise WrongInput from None


# ── control ─────────────────────────────────────────────────────────────────────────────────────


def _item(params: Values, inputs: Values) -> dict[str, Any]:
    try:
        return {"item": inputs["items"][inputs.get("index", params["index"])]}
    except IndexError:
        raise WrongInput from None


def _chosen(params: Values, inputs: Values) -> dict[str, Any]:
    return {"value": inputs["if_true" if inputs["flag"] else "if_false"]}


def _collect(params: Values, inputs: Values) -> dict[str, Any]:
    names = [one.split(":")[0].strip().rstrip("?") for one in params["ports"].split(",")]
    return {"items": [inputs[name] for name in names if name in inputs]}


def _fail(params: Values, inputs: Values) -> dict[str, Any]:
    if inputs.get("flag", True):
        raise WrongInput(inputs.get("message", params["message"]))
    return {"value": inputs["value"]} if "value" in inputs else {}


def _gate(params: Values, inputs: Values) -> dict[str, Any]:
    return {"value": inputs["value"]} if inputs["flag"] else {}


# ── pictures and sounds ─────────────────────────────────────────────────────────────────────────


def _constant(params: Values, _: Values) -> dict[str, Any]:
    if params["type"] == "text":
        return {"value": params["value"]}
    value = json.loads(params["value"])
    return {"value": np.array(value, np.float32) if isinstance(value, list) else value}


def _flip(params: Values, inputs: Values) -> dict[str, Any]:
    return {"pixels": np.flip(inputs["pixels"], 2 if params["direction"] == "horizontal" else 1)}


def _crop(params: Values, inputs: Values) -> dict[str, Any]:
    pixels, left, top = inputs["pixels"], params["left"], params["top"]
    _, height, width = pixels.shape
    if left >= width or top >= height:
        raise WrongInput
    right, bottom = left + (params["width"] or width), top + (params["height"] or height)
    return {"pixels": pixels[:, top:bottom, left:right]}


def _pad(params: Values, inputs: Values) -> dict[str, Any]:
    around = ((0, 0), (params["top"], params["bottom"]), (params["left"], params["right"]))
    assert params["color"] == "#000000"
    return {"pixels": np.pad(inputs["pixels"], around, constant_values=-1.0)}


TWINS: dict[str, Twin] = {
    "numbers.constant": _constant,
    "picture.flip": _flip,
    "picture.crop": _crop,
    "picture.pad": _pad,
    "sound.gain": lambda params, inputs: {"waveform": inputs["waveform"] * np.float32(10 ** (params["gain"] / 20))},
    "text.template": _template,
    "text.join": _join,
    "text.split": _split,
    "text.extract": _extract,
    "text.replace": _replace,
    "text.trim": _trim,
    "text.similarity": _similarity,
    "json.build": _build,
    "json.read": _read,
    "json.pick": _pick,
    "numbers.value": lambda params, _: {"value": params["value"]},
    "numbers.arithmetic": _arithmetic,
    "numbers.compare": _compare,
    "numbers.statistics": _statistics,
    "numbers.cast": _cast,
    "numbers.shape": _shape,
    "numbers.select": _slice,
    "numbers.stack": _stack,
    "numbers.unstack": _unstack,
    "numbers.reshape": _reshape,
    "control.gate": _gate,
    "control.select": _chosen,
    "control.collect": _collect,
    "control.item": _item,
    "control.count": lambda _, inputs: {"count": len(inputs["items"])},
    "control.fail": _fail,
}
