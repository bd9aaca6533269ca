"""Export a run as a folder to attach to a bug report: its request, its outputs, its trace, its environment."""

from __future__ import annotations

import binascii
import json
import platform
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pybase64

from walkgraph.cli.runs import request
from walkgraph.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from walkgraph.client import Client

PACKAGES = ("walkgraph", "torch", "triton", "flashinfer-python")
_SUFFIXES = (
    (b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"fLaC", ".flac"), (b"OggS", ".ogg"), (b"ID3", ".mp3"),
    (b"GIF8", ".gif"), (b"\x1a\x45\xdf\xa3", ".webm"), (b"PK\x03\x04", ".zip"),
)  # fmt: skip
_RIFF = {b"WAVE": ".wav", b"WEBP": ".webp"}


def export_run(client: Client, run: str, folder: Path) -> dict[str, Any]:
    """Write everything that is kept of a run; `missing` names the rest. Raises Conflict for a folder that isn't empty,
    and ProblemError for an unknown run."""
    found = client.get_run(run)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"`{folder}` exists already and is not empty; name another folder with `--out`")
    try:
        return _written(client, run, dict(found), folder)
    except OSError as error:
        raise InvalidInput(f"`{folder}` can't be written: {error.strerror}") from None


def _written(client: Client, run: str, found: dict[str, Any], folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True, exist_ok=True)
    missing: dict[str, str] = {}
    files = [_json(folder, "run", found)]
    deployment = found["deployment"]

    def part(what: str, ask: Callable[[], Any]) -> Any | None:
        from walkgraph.client import ProblemError

        try:
            return ask()
        except ProblemError as error:
            missing[what] = str(error)
            return None

    asked = part("request", lambda: client.asked(run))
    if asked is not None and asked["request"] is None:
        missing["request"] = "it was too large to be kept"
    elif asked is not None:
        files.append(_json(folder, "request", asked))
        files += _inputs(folder, asked["request"])
    result = part("result", lambda: client.result(run))
    if result is not None:
        files += _outputs(folder, found["task"], result)
    for name, ask in (
        ("trace", lambda: client.trace(run)),
        ("why", lambda: client.why(run)),
        ("graph", lambda: client.deployed_graph(deployment)),
        ("placement", lambda: client.deployed_placement(deployment)),
        ("deployment", lambda: client.deployment(deployment)),
    ):
        value = part(name, ask)
        if value is not None:
            files.append(_json(folder, name, value))
    for form in ("perfetto", "otlp"):
        data = part(f"trace.{form}", lambda form=form: client.trace_file(run, form))
        if data is not None:
            (folder / f"trace.{form}.json").write_bytes(data)
            files.append(f"trace.{form}.json")
    about = {"run": run, **versions(), "exported": datetime.now(UTC).isoformat(timespec="seconds"), "missing": missing}
    files.append(_json(folder, "about", about))
    return {"folder": str(folder), "files": sorted(files), "missing": missing}


def versions() -> dict[str, str]:
    """Versions of the software, if this is the machine that ran it."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _json(folder: Path, name: str, value: Any) -> str:
    (folder / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return f"{name}.json"


def _inputs(folder: Path, asked: Mapping[str, Any]) -> Iterator[str]:
    """Write the pictures and sounds of a request as files. `request.json` holds them too, so that it can be sent as it
    is."""
    given = asked.get("inputs")
    for name, values in (given if isinstance(given, dict) else {}).items():
        for number, value in enumerate(values if isinstance(values, list) else [values]):
            data = _media(value)
            if data is None:
                continue
            file = f"inputs/{name}{f'-{number}' if number else ''}{_suffix(data)}"
            (folder / "inputs").mkdir(exist_ok=True)
            (folder / file).write_bytes(data)
            yield file


def _media(value: Any) -> bytes | None:
    """The bytes of a picture or a sound, recognized by their beginning; None for anything else."""
    text = value.get("data") if isinstance(value, dict) else value
    if not isinstance(text, str):
        return None
    try:
        data = pybase64.b64decode(text.rpartition(";base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if _suffix(data) != ".bin" else None


def _suffix(data: bytes) -> str:
    if data.startswith(b"RIFF"):
        return _RIFF.get(data[8:12], ".bin")
    if data[4:8] == b"ftyp":
        return ".mp4"
    return next((suffix for start, suffix in _SUFFIXES if data.startswith(start)), ".bin")


def _outputs(folder: Path, task: str, result: dict[str, Any]) -> list[str]:
    """Write every output to a file of its own, and the answer with file names in place of the data."""
    outputs: dict[str, Any] = {}
    for name, values in result.get("outputs", {}).items():
        outputs[name] = [dict(value) for value in (values if isinstance(values, list) else [values])]
    answer = {**result, "outputs": outputs, "error": None, "seed": result.get("seed")}
    declared = {"name": task, "outputs": list(outputs)}
    written = [Path(path) for path in request.save(answer, declared, f"{folder / 'outputs'}/")]
    answer["error"] = result.get("error")
    for values in outputs.values():
        for value in values:
            if "file" in value:
                value["file"] = str(Path(value["file"]).relative_to(folder))
    return [_json(folder, "result", answer), *(str(path.relative_to(folder)) for path in written)]
