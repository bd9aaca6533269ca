"""A form from a task's declaration: inputs by modality, parameters with their bounds; its answer is the request."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import streamlit as st

MOST_SLIDER_STEPS = 1000
_EXAMPLE = re.compile(r"`([^`]+)`")
_TYPES = {"image": ["png", "jpg", "jpeg", "webp"], "audio": ["wav", "flac", "ogg", "mp3"]}


class Incomplete(Exception):
    """Something that is needed was not given; the text says what."""


def draw(task: dict[str, Any], key: str) -> dict[str, Any]:
    """Draw the widgets and return what they hold: `{name: widget value}` under `inputs` and `params`."""
    inputs = {name: _input(name, declared, f"{key}.in.{name}") for name, declared in task["inputs"].items()}
    params: dict[str, Any] = {}
    with st.expander("Parameters", icon=":material/tune:"):
        for name, declared in task["params"].items():
            if name != "seed":
                params[name] = _param(name, declared, f"{key}.param.{name}")
    seed = st.number_input("Seed", value=None, min_value=0, step=1, placeholder="drawn", key=f"{key}.seed")
    if seed is not None:
        params["seed"] = int(seed)
    return {"inputs": inputs, "params": params}


def request(task: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The body for the service. Raises Incomplete."""
    inputs: dict[str, Any] = {}
    for name, declared in task["inputs"].items():
        value = _value(name, declared, given["inputs"][name])
        if value not in (None, "", []):
            inputs[name] = value
        elif not declared["optional"]:
            raise Incomplete(f"`{name}` is needed")
    params = {name: value for name, value in given["params"].items() if value is not None}
    return {"inputs": inputs, "params": params}


def label(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _input(name: str, declared: dict[str, Any], key: str) -> Any:
    text, modality = declared["description"], declared["modality"]
    if modality == "text":
        example = _EXAMPLE.search(text)
        return st.text_area(label(name), example[1] if example else "", key=key, help=text or None, height=96)
    if modality in _TYPES:
        found = st.file_uploader(
            label(name), type=_TYPES[modality], accept_multiple_files=declared["many"], key=key, help=text or None
        )
        return found if isinstance(found, list) else [found] if found else []
    return st.text_area(f"{label(name)} (numbers, as JSON)", key=key, help=text or None, placeholder="[0.0, 0.1]")


def _value(name: str, declared: dict[str, Any], given: Any) -> Any:
    if declared["modality"] == "text":
        return given
    if declared["modality"] in _TYPES:
        files = [base64.b64encode(file.getvalue()).decode() for file in given]
        return files if declared["many"] else files[0] if files else None
    if not given:
        return None
    try:
        return {"type": declared["modality"], "data": json.loads(given)}
    except ValueError:
        raise Incomplete(f"`{name}` must be a JSON list of numbers") from None


def _param(name: str, declared: dict[str, Any], key: str) -> Any:
    text, default, kind = declared["description"] or None, declared["default"], declared["type"]
    low, high = declared["min"], declared["max"]
    if declared["choices"]:
        choices = list(declared["choices"])
        index = choices.index(default) if default in choices else 0
        return st.selectbox(label(name), choices, index=index, help=text, key=key)
    if kind == "boolean":
        return st.toggle(label(name), value=bool(default), help=text, key=key)
    if kind == "string":
        return st.text_input(label(name), value=default or "", help=text, key=key)
    number = int if kind == "integer" else float
    step = number(1) if kind == "integer" else 0.05
    bounded = low is not None and high is not None and (high - low) / step <= MOST_SLIDER_STEPS
    bounds = {"min_value": _as(number, low), "max_value": _as(number, high)}
    if bounded and default is not None:
        return st.slider(label(name), value=number(default), step=step, help=text, key=key, **bounds)
    return st.number_input(label(name), value=_as(number, default), step=step, help=text, key=key, **bounds)


def _as(number: type[int] | type[float], value: float | None) -> Any:
    return None if value is None else number(value)
