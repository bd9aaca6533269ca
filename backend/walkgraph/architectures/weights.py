"""Weights in the public layout: safetensors only, whole or sharded, strict, built on `meta` and assigned.

`walkgraph.checkpoints` reads a folder's configs and headers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar, Unpack

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn import functional as F

from walkgraph.architectures.precision import Kept
from walkgraph.checkpoints.files import Shape, coded, files, tensors
from walkgraph.checkpoints.sharding.cut import Cut, Cuts
from walkgraph.errors import InvalidInput
from walkgraph.layers.unset import unset

M = TypeVar("M", bound=nn.Module)
Named = tuple[str, torch.Tensor]
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
"""Names of types in safetensors files."""
Progress = Callable[[int], None]
"""Called with the bytes of every tensor loaded."""


def _none(name: str) -> bool:
    return False


def uncut(name: str) -> Cut | None:
    """Every tensor whole."""
    return None


class Loading(TypedDict, total=False):
    """Target of a file's tensors."""

    device: torch.device | str
    """Defaults to the CPU."""
    dtype: torch.dtype
    """Defaults to float32."""
    progress: Progress | None
    precision: str
    """The number format, as in `LoadContext`."""


class Names(NamedTuple):
    """The mapping from a file's tensors to a module's."""

    rename: Callable[[str], str | None] = str
    """Name in the file -> name in the module; None for a tensor of another part of the model, which is not read."""
    spare: Collection[str] = ()
    """Tensors that may exist and are not read, by their names in the module."""
    exact: Callable[[str], bool] = _none
    """True for a tensor of the module that stays in float32."""
    regroup: Callable[[Iterable[Named]], Iterable[Named]] = iter
    """A file's tensors, renamed, -> the module's: some may be joined or left out."""
    cuts: Cuts = uncut
    """The part of each of the module's tensors that is read."""


def load(
    build: Callable[[], M],
    folder: Path,
    stem: str,
    *,
    names: Names = Names(),  # noqa: B008 (of values that don't change)
    **on: Unpack[Loading],
) -> M:
    """Build on `meta`, then assign every tensor of `<stem>.safetensors` (or of its shards), cast to `dtype`.

    Raises `NotFound` for a missing file and `InvalidInput` for missing, unknown, misshapen or quantised tensors.
    """
    device, dtype, progress = on.get("device", "cpu"), on.get("dtype", torch.float32), on.get("progress")
    with unset():
        module = build()
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    kept = Kept(module, on.get("precision", "bf16"))
    state: dict[str, torch.Tensor] = {}
    problems: list[str] = []
    for name, tensor in names.regroup(_tensors(folder, stem, str(device), names)):
        if name not in wanted:
            problems.append(f"unknown tensor `{name}`")
        elif (fault := undecoded(name, tensor)) is not None:
            problems.append(fault)
        elif tuple(tensor.shape) != wanted[name]:
            problems.append(f"`{name}` is {list(tensor.shape)}, the config requires {list(wanted[name])}")
        else:
            state[name] = kept(name, tensor.to(torch.float32 if names.exact(name) else dtype))
            if progress is not None:
                progress(tensor.nbytes)
    problems += [f"missing tensor `{name}`" for name in wanted.keys() - state.keys() if not _named(name, problems)]
    if problems:
        more = f" and {len(problems) - 5} more" if len(problems) > 5 else ""
        shown = "; ".join(sorted(problems)[:5])
        raise InvalidInput(f"`{stem}` in `{folder.name}` does not fit its config: {shown}{more}")
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False)


def undecoded(name: str, tensor: torch.Tensor) -> str | None:
    """Why numbers can't be used as they are, in a sentence; None if they can."""
    return coded(name, _DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")))


def _named(name: str, problems: list[str]) -> bool:
    return any(f"`{name}`" in problem for problem in problems)


def _tensors(folder: Path, stem: str, device: str, names: Names) -> Iterator[tuple[str, torch.Tensor]]:
    def cuts(filed: str) -> Cut | None:
        named = _own(filed, names)
        return None if named is None else names.cuts(named)

    for filed, tensor in read_tensors(folder, stem, device, lambda filed: _own(filed, names) is not None, cuts):
        named = _own(filed, names)
        if named is not None:
            yield named, tensor


def _own(filed: str, names: Names) -> str | None:
    """A tensor's name in the module; None for one that is not read."""
    named = names.rename(filed)
    return None if named in names.spare else named


def read_tensors(
    folder: Path, stem: str, device: str, wanted: Callable[[str], bool], cuts: Cuts = uncut
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of all files of a stem, or the parts that `cuts` names of them, by their names there. Raises
    `NotFound` and `InvalidInput`."""
    found = tensors(folder, stem)  # headers and index must agree first
    for path in files(folder, stem):
        with opened(path, device) as shard:
            for name in shard.keys():  # noqa: SIM118 (a handle, not a mapping)
                if not wanted(name):
                    continue
                cut = cuts(name)
                if cut is None:
                    yield name, shard.get_tensor(name)
                else:
                    _check(name, found[name].shape, cut)
                    yield name, filled(shard.get_slice(name)[_at(cut)], cut)


def cut_out(tensor: torch.Tensor, cut: Cut) -> torch.Tensor:
    """A part of a tensor, as a copy."""
    return filled(tensor[_at(cut)].clone(), cut)


def filled(part: torch.Tensor, cut: Cut) -> torch.Tensor:
    """The part with zeros for what it lacks at its end."""
    missing = cut.length - part.shape[cut.dim]
    return F.pad(part, [0, 0] * (part.dim() - 1 - cut.dim) + [0, missing]) if missing else part


def _at(cut: Cut) -> tuple[slice, ...]:
    return (*[slice(None)] * cut.dim, slice(cut.start, cut.stop))


def _check(name: str, shape: Shape, cut: Cut) -> None:
    """Raises InvalidInput for a tensor that isn't as long as the cut supposes."""
    if len(shape) <= cut.dim or shape[cut.dim] != cut.size:
        raise InvalidInput(f"`{name}` is {list(shape)}, the config requires {cut.size} in dimension {cut.dim}")


@contextmanager
def opened(path: Path, device: str) -> Iterator[Any]:
    """A safetensors file; raises `InvalidInput` for one that isn't."""
    try:
        with safe_open(path, framework="pt", device=device) as shard:
            yield shard
    except SafetensorError as error:
        raise InvalidInput(f"`{path.name}` is not a readable safetensors file: {error}") from error
