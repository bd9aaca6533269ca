"""A model of the package `transformers`, where that is installed: safetensors of one folder, no code, no network."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from walkgraph import wrap
from walkgraph.abi.calls import Scalar
from walkgraph.abi.operator import LoadContext
from walkgraph.adapters.models import ModelOperator
from walkgraph.adapters.reporting import Reporter
from walkgraph.checkpoints.files import open_file, stems, tensors
from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.functions.signatures import Signature

_MOST_CONFIG = 1 << 22
_ADAPTER = "adapter_config.json"


@dataclass(frozen=True)
class PretrainedNetwork:
    signature: Signature
    made: wrap.Transformers
    reporter: Reporter
    options: tuple[str, ...] = ()

    def load(self, context: LoadContext) -> ModelOperator:
        if context.folder is None:
            raise Refused("a model of `transformers` needs a folder: use `checkpoint:NAME` as the weights' source")
        _check(context.folder)
        kind = _class(self.made.model)
        try:
            model = kind.from_pretrained(
                str(context.folder),
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=context.dtype,
                attn_implementation=self.made.attention,
            )
        except Exception as raised:  # noqa: BLE001 (the library may raise anything for a folder)
            raise self.reporter.not_loaded(raised) from None
        model = model.to(context.device).eval().requires_grad_(False)

        def run(inputs: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Any]:
            found = model(**inputs, return_dict=True)
            return {port: getattr(found, port, None) for port in self.signature.outputs}

        return ModelOperator.of(self.signature, run, context.dtype, self.reporter)


def _class(name: str) -> Any:
    """A class of `transformers` that loads models. Raises Refused."""
    try:
        package = importlib.import_module("transformers")
    except ImportError:
        raise Refused(
            "`transformers` isn't installed in this environment; install it there: `pip install transformers`"
        ) from None
    found = getattr(package, name, None)
    if not isinstance(found, type) or not callable(getattr(found, "from_pretrained", None)):
        raise Refused(f"`transformers` has no model `{name}`; its classes are named as `BertModel`")
    return found


def _check(folder: Path) -> None:
    """Raises NotFound or InvalidInput for broken files, and Refused for a folder that asks for more than its own config
    and tensors: code beside it, or another model by its name."""
    if not stems(folder):
        raise NotFound(f"`{folder.name}` has no safetensors; other formats are not loaded")
    for stem in stems(folder):
        tensors(folder, stem)
    try:
        with open_file(folder / "config.json") as file:
            config: Any = json.loads(file.read(_MOST_CONFIG))
    except (OSError, ValueError, RecursionError):
        raise InvalidInput(f"`config.json` in `{folder.name}` can't be read; fetch it again") from None
    if not isinstance(config, dict) or _has_code(config):
        raise Refused(
            f"`config.json` in `{folder.name}` names code of its own (`auto_map`), which never runs; use a model that "
            "`transformers` has itself"
        )
    if (folder / _ADAPTER).exists():
        raise Refused(f"`{folder.name}` is an adapter of another model (`{_ADAPTER}`); merge it, and save the whole")


def _has_code(value: Any) -> bool:
    """True if a config, or one inside it, names code."""
    if isinstance(value, dict):
        return "auto_map" in value or any(map(_has_code, value.values()))
    return isinstance(value, list) and any(map(_has_code, value))
