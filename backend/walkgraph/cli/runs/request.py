"""Build a task's request from the command line, and save its outputs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pybase64

from walkgraph.cli.show import films
from walkgraph.errors import InvalidInput, NotFound
from walkgraph.media_types import suffix_of

SEED = {"type": "integer", "default": None}
MEDIA = ("image", "audio", "video", "bytes")
PREVIEW = "preview"


def build(declared: dict[str, Any], options: Sequence[str], params: Sequence[str]) -> dict[str, Any]:
    """The request body from a task's declaration, `--name value` options and `name=value` parameters. `-` may
    stand for `_`, as in other options. Raises InvalidInput."""
    inputs: dict[str, Any] = {}
    given: dict[str, Any] = {}
    known = {**declared["params"], "seed": declared["params"].get("seed", SEED)}
    for spelled, text in [*_pairs(options), *(_split(param) for param in params)]:
        exact = spelled in declared["inputs"] or spelled in known
        name = spelled if exact else spelled.replace("-", "_")
        if name in declared["inputs"]:
            _add_input(inputs, declared["inputs"][name], name, text)
        elif name in known:
            given[name] = _number(name, known[name]["type"], text)
        else:
            near = difflib.get_close_matches(name, [*declared["inputs"], *known], n=1)
            advice = f"did you mean `--{near[0]}`?" if near else "see `walkgraph run D T --inputs`"
            raise InvalidInput(f"the task `{declared['name']}` has no input or parameter `{spelled}`; {advice}")
    return {"inputs": inputs, "params": given}


def _pairs(options: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    waiting = list(options)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--") or word == "--":
            raise InvalidInput(f"`{word}` is not an option; write inputs and parameters as `--name value`")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not waiting:
                raise InvalidInput(f"`--{name}` needs a value")
            value = waiting.pop(0)
        found.append((name, value))
    return found


def _split(param: str) -> tuple[str, str]:
    name, equals, value = param.partition("=")
    if not equals:
        raise InvalidInput(f"`{param}` is not a parameter; write `--param name=value`")
    return name, value


def _add_input(inputs: dict[str, Any], declared: dict[str, Any], name: str, text: str) -> None:
    value = _input(declared["modality"], text)
    if declared["many"]:
        inputs.setdefault(name, []).append(value)
    elif name in inputs:
        raise InvalidInput(f"`--{name}` takes one value")
    else:
        inputs[name] = value


def _input(modality: str, text: str) -> Any:
    if modality == "text":
        return text
    if modality == "messages":
        return _conversation(text)
    if modality not in MEDIA and (numbers := _numbers(text)) is not None:
        return {"type": modality, "data": numbers}
    path = Path(text)
    if not path.is_file():
        more = "" if modality in MEDIA else ": numbers as `0.1 0.2`, or a file of them in JSON"
        raise NotFound(f"there is no file `{text}`; this input is of type {modality}{more}")
    if modality in MEDIA:
        return pybase64.b64encode(path.read_bytes()).decode()
    from walkgraph.graph.reading.guard import read_json

    return {"type": modality, "data": read_json(path.read_bytes())}


def _conversation(text: str) -> Any:
    """A list of turns as JSON, a file of them, or a text: one turn of the user."""
    from walkgraph.graph.reading.guard import read_json

    if text.startswith("["):
        return read_json(text.encode())
    if text.endswith(".json"):
        if not Path(text).is_file():
            raise NotFound(f"there is no file `{text}`; a conversation is a text, or a file of turns in JSON")
        return read_json(Path(text).read_bytes())
    return [{"role": "user", "content": text}]


def _numbers(text: str) -> Any:
    """A JSON list, or numbers separated by spaces or commas; None for anything else."""
    if text.startswith("["):
        from walkgraph.graph.reading.guard import read_json

        return read_json(text.encode())
    try:
        return [float(word) for word in text.replace(",", " ").split()] or None
    except ValueError:
        return None


def _number(name: str, kind: str, text: str) -> Any:
    try:
        match kind:
            case "integer":
                return int(text)
            case "number":
                return float(text)
            case "boolean":
                return {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}[text.lower()]
            case _:
                return text
    except (ValueError, KeyError):
        raise InvalidInput(f"`--{name}` takes {'true or false' if kind == 'boolean' else 'a number'}") from None


# ── outputs ─────────────────────────────────────────────────────────────────────────────────────


def add(outputs: dict[str, list[dict[str, Any]]], name: str, value: dict[str, Any]) -> None:
    """Append a value; consecutive pieces of text are joined."""
    found = outputs.setdefault(name, [])
    if found and value["type"] == "text" and found[-1]["type"] == "text":
        found[-1]["text"] += value["text"]
    else:
        found.append(dict(value))


def save(result: dict[str, Any], declared: dict[str, Any], out: str | None) -> list[str]:
    """Write media to files and replace the data by the file's name; returns the names.

    `out`: a file for the task's main output (the first that isn't a preview), or a folder for all of them. Without it,
    a file in the working directory, named for the task and the seed. A film is one animated file, in a folder its
    pictures.
    """
    if result["error"]:
        return []
    media = {
        name: [value for value in values if "data" in value and "mime" in value]
        for name, values in result["outputs"].items()
    }
    for name, values in media.items():
        whole = _whole_sound(values)
        if whole is not None:
            media[name] = result["outputs"][name] = [whole]
    everything = out is not None and (out.endswith("/") or Path(out).is_dir())
    names = [name for name in declared["outputs"] if media.get(name)]
    if not everything:
        names = [name for name in names if name != PREVIEW][:1] or names[:1]
    written: list[str] = []
    for name in names:
        if not everything and films.is_film(name, media[name], _path(out, declared, result, name, media[name][0])):
            written.append(_save_film(media[name], _path(out, declared, result, name, media[name][0])))
            continue
        for number, value in enumerate(media[name]):
            path = _path(out, declared, result, name, value, everything=everything)
            path = path if number == 0 else path.with_stem(f"{path.stem}-{number}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(pybase64.b64decode(value.pop("data")))
            value["file"] = str(path)
            written.append(str(path))
    return written


def _save_film(values: list[dict[str, Any]], path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    films.write_film(values, path)
    for value in values:
        del value["data"]
        value["file"] = str(path)
    return str(path)


def _whole_sound(values: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The sound that came in several WAV pieces, joined; None for anything else."""
    if len(values) < 2 or any(value["mime"] != "audio/wav" for value in values):
        return None
    from walkgraph.service.values import wav

    whole = wav.joined([pybase64.b64decode(value["data"]) for value in values])
    return None if whole is None else {**values[0], "data": pybase64.b64encode(whole).decode()}


def _path(
    out: str | None,
    declared: dict[str, Any],
    result: dict[str, Any],
    name: str,
    value: dict[str, Any],
    *,
    everything: bool = False,
) -> Path:
    suffix = suffix_of(value["mime"])
    if everything and out is not None:
        return Path(out) / f"{name}{suffix}"
    return Path(out) if out is not None else Path(f"{declared['name']}-{result['seed']}{suffix}")
