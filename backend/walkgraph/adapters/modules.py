"""A class on `torch.nn.Module` of a plug-in, with weights from safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from walkgraph import wrap
from walkgraph.abi.calls import Scalar
from walkgraph.abi.operator import LoadContext
from walkgraph.adapters.models import ModelOperator
from walkgraph.adapters.reporting import Reporter
from walkgraph.architectures.weights import read_tensors
from walkgraph.checkpoints.files import stems
from walkgraph.errors import InvalidInput, Refused, WalkgraphError
from walkgraph.functions.reading import Declared
from walkgraph.functions.signatures import Signature

_LISTED = 5


@dataclass(frozen=True)
class ModuleNetwork:
    declared: Declared
    made: type[nn.Module]
    reporter: Reporter

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.declared.wrapped.options) if self.declared.wrapped else ()

    def load(self, context: LoadContext) -> ModelOperator:
        wrapped = self.declared.wrapped
        given = wrapped.made if wrapped else None
        if wrapped is None or not isinstance(given, wrap.Module):
            raise Refused(f"`{self.made.__name__}` is not under `wrap.module`")
        options = {name: context.options.get(name, param.default) for name, param in wrapped.options.items()}
        try:
            module = self._built(context, options)
        except WalkgraphError:
            raise
        except Exception as raised:  # noqa: BLE001 (the code of a plug-in may raise anything)
            raise self.reporter.not_loaded(raised) from None
        if context.folder is not None:
            read_into(module, context.folder, given.files, context)
        module = module.to(context.device, context.dtype).eval().requires_grad_(False)
        return ModelOperator.of(
            self.declared.signature, _run(module, self.declared.signature, options), context.dtype, self.reporter
        )

    def _built(self, context: LoadContext, options: Mapping[str, Scalar | None]) -> nn.Module:
        """Drawn from the seed of `random:` weights; nothing of the process's own random numbers changes."""
        if context.random is None and context.folder is None:
            raise Refused("a node of this component needs weights; name a set of the graph's `weights` in it")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(context.random[1] if context.random is not None else 0)
            return self.made(**options)


def _run(module: nn.Module, signature: Signature, options: Mapping[str, Any]) -> Any:
    def run(inputs: Mapping[str, Tensor], params: Mapping[str, Scalar]) -> Mapping[str, Any]:
        arguments = [inputs.get(port) for port in signature.inputs]
        found = module(*arguments, **{name: value for name, value in params.items() if name not in options})
        if signature.answer == "single":
            return dict.fromkeys(signature.outputs, found)
        if signature.answer == "items":
            return found
        return {port: getattr(found, port) for port in signature.outputs}

    return run


def read_into(module: nn.Module, folder: Path, stem: str | None, context: LoadContext) -> None:
    """Copy a folder's tensors into a module. Raises NotFound, or InvalidInput for missing, unknown or misshapen
    ones."""
    wanted: dict[str, Tensor] = module.state_dict()
    problems: list[str] = []
    found: set[str] = set()
    with torch.no_grad():
        for name, tensor in _tensors(folder, stem):
            target = wanted.get(name)
            if target is None:
                problems.append(f"unknown tensor `{name}`")
            elif target.shape != tensor.shape:
                problems.append(f"`{name}` is {list(tensor.shape)}, the module has {list(target.shape)}")
            elif target.is_floating_point() != tensor.is_floating_point():
                problems.append(f"`{name}` holds {tensor.dtype}, the module {target.dtype}")
            else:
                target.copy_(tensor)
                if context.progress is not None:
                    context.progress(tensor.nbytes)
            found.add(name)
    problems += [f"missing tensor `{name}`" for name in wanted if name not in found]
    if problems:
        more = f" and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise InvalidInput(
            f"`{folder.name}` does not fit `{type(module).__name__}`: {'; '.join(sorted(problems)[:_LISTED])}{more}"
        )


def _tensors(folder: Path, stem: str | None) -> Iterator[tuple[str, Tensor]]:
    for one in [stem] if stem is not None else stems(folder):
        yield from read_tensors(folder, one, "cpu", lambda name: True)
