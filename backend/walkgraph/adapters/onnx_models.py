"""An ONNX file as an operator, run by `onnxruntime` where that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walkgraph import wrap
from walkgraph.abi.calls import Scalar
from walkgraph.abi.operator import LoadContext
from walkgraph.adapters.models import ModelOperator
from walkgraph.adapters.onnx_files import check_files
from walkgraph.adapters.reporting import Reporter
from walkgraph.errors import NotFound, Refused
from walkgraph.functions.signatures import Signature


@dataclass(frozen=True)
class OnnxNetwork:
    signature: Signature
    made: wrap.Onnx
    reporter: Reporter
    options: tuple[str, ...] = ()

    def load(self, context: LoadContext) -> ModelOperator:
        if context.folder is None:
            raise Refused("an ONNX file needs a folder: use `checkpoint:NAME` as the weights' source")
        session = self._session(_file(context.folder, self.made.file), context)
        names = {one.name: one for one in session.get_inputs()}
        given = [one.name for one in session.get_outputs()]
        if unknown := sorted({*self.signature.inputs} ^ {*names}) or sorted({*self.signature.outputs} - {*given}):
            there = f"its inputs are {sorted(names)}, its outputs {sorted(given)}"
            raise Refused(f"`{self.made.file}` and its component differ in `{unknown[0]}`: {there}")
        wanted = list(self.signature.outputs)

        def run(inputs: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Any]:
            feeds = {name: _as_wanted(value, names[name].type) for name, value in inputs.items()}
            found = session.run(wanted, feeds)
            return {port: torch.from_numpy(value).to(context.device) for port, value in zip(wanted, found, strict=True)}

        fixed = any(one.shape and one.shape[0] == 1 for one in names.values())
        return ModelOperator.of(self.signature, run, torch.float32, self.reporter, single=fixed)

    def _session(self, path: Path, context: LoadContext) -> Any:
        try:
            runtime: Any = importlib.import_module("onnxruntime")
        except ImportError:
            raise Refused(
                "`onnxruntime` isn't installed in this environment; install it there: `pip install onnxruntime`"
            ) from None
        check_files(path)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        providers = ["CPUExecutionProvider"]
        if context.device.type == "cuda" and "CUDAExecutionProvider" in runtime.get_available_providers():
            providers.insert(0, "CUDAExecutionProvider")
        try:
            return runtime.InferenceSession(str(path), options, providers=providers)
        except Exception as raised:  # noqa: BLE001 (the library may raise anything for a file)
            raise self.reporter.not_loaded(raised) from None


def _file(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise NotFound(f"`{folder.name}` has no file `{name}`")
    return path


_NUMPY = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(double)": torch.float64,
          "tensor(int64)": torch.int64, "tensor(int32)": torch.int32, "tensor(bool)": torch.bool}  # fmt: skip


def _as_wanted(value: Tensor, kind: str) -> Any:
    """The array in the type that the file takes."""
    return value.to("cpu", _NUMPY.get(kind, value.dtype)).numpy()
