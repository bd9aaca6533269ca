"""Recognize the family of a folder's weights, and check them against its network."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from walkgraph import plugins
from walkgraph.checkpoints.contents import Contents, numbers, refuse_pickles
from walkgraph.checkpoints.family import Companion, Family, Part
from walkgraph.checkpoints.files import Shape, coded
from walkgraph.errors import NotFound

SHOWN = 5
"""The most tensors of one kind listed in a sentence."""


@dataclass(frozen=True)
class Misfits:
    """Tensors of one stem that don't match the network."""

    stem: str
    missing: tuple[str, ...]
    odd: tuple[tuple[str, Shape, Shape], ...]
    """Name, shape in the file, shape required by the config."""
    unknown: tuple[str, ...]
    coded: tuple[str, ...]
    """Sentences about tensors whose numbers can't be used as they are."""

    @property
    def found(self) -> bool:
        return bool(self.missing or self.odd or self.unknown or self.coded)

    def sentences(self) -> Iterable[str]:
        if self.missing:
            yield f"`{self.stem}` lacks {_listed(self.missing)}"
        if self.odd:
            faults = [f"`{name}` is {_by(have)}, not {_by(want)}" for name, have, want in self.odd[:SHOWN]]
            yield f"in `{self.stem}`, {'; '.join(faults)}{_more(len(self.odd))}"
        if self.unknown:
            yield f"`{self.stem}` has tensors that the network doesn't read: {_listed(self.unknown)}"
        if self.coded:
            first, *others = self.coded
            yield f"in `{self.stem}`, {first}" + (f" (and {len(others)} tensors more)" if others else "")


@dataclass(frozen=True)
class Recognised:
    family: Family
    contents: Contents
    parts: tuple[str, ...]
    parameters: int
    """Count of numbers in all tensors that are read."""
    bytes: int
    dtypes: Mapping[str, int]
    """Type -> number of tensors."""
    misfits: tuple[Misfits, ...]
    lacking: tuple[str, ...]
    """Sentences that name missing files next to the weights."""

    def problems(self) -> list[str]:
        return [*(line for misfit in self.misfits for line in misfit.sentences()), *self.lacking]


@cache
def known() -> Mapping[str, Family]:
    """The families that can be imported, by name."""
    given = {name: _declared(name, "FAMILY") for name in plugins.having(plugins.MODELS, "importing")}
    return {name: family for name, family in given.items() if family is not None}


@cache
def companions() -> Mapping[str, Companion]:
    """The families whose weights are used beside another's, by name."""
    given = {name: _declared(name, "COMPANION") for name in plugins.having(plugins.MODELS, "importing")}
    return {name: found for name, found in given.items() if found is not None}


def companion(family: str) -> Companion:
    """A family's declaration for weights beside another's."""
    return _declared(family, "COMPANION")


def _declared(family: str, attribute: str) -> Any:
    return plugins.load(plugins.MODELS, f"{family}.importing", attribute, None)


def recognise(contents: Contents) -> Recognised:
    """Recognize a folder. Raises Refused for pickles, NotFound for a folder without weights or of no known family,
    InvalidInput for a config that the family's network doesn't support."""
    refuse_pickles(contents)
    in_order = sorted(known().values(), key=lambda family: family.general)
    family = next((family for family in in_order if family.recognises(contents)), None)
    if family is None:
        raise NotFound(_unknown(contents))
    if not contents.weights:
        raise NotFound(
            f"`{contents.name}` is a folder of {family.title} without weights: no `.safetensors` file is there"
        )
    parts = family.parts(contents)
    misfits = tuple(found for part in parts if (found := misfits_of(part, contents)).found)
    dtypes: dict[str, int] = {}
    tensors = [tensor for part in parts for tensor in contents.weights.get(part.stem, {}).values()]
    for tensor in tensors:
        dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + 1
    return Recognised(
        family=family,
        contents=contents,
        parts=tuple(part.stem for part in parts),
        parameters=sum(numbers(shape) for part in parts for shape in part.expected.values()),
        bytes=sum(tensor.bytes for tensor in tensors),
        dtypes=dict(sorted(dtypes.items())),
        misfits=misfits,
        lacking=tuple(family.notes(contents)),
    )


def misfits_of(part: Part, contents: Contents) -> Misfits:
    """Compare a part's tensors with the network. `named` may have joined or dropped some, so the names are the
    network's."""
    files = contents.weights.get(part.stem, {})
    have = part.named({name: tensor.shape for name, tensor in files.items()})
    odd = tuple((n, have[n], want) for n, want in part.expected.items() if n in have and have[n] != want)
    missing = tuple(name for name in part.expected if name not in have)
    faults = {name: fault for name, tensor in files.items() if (fault := coded(name, tensor.dtype, files)) is not None}
    # Tensors that the network doesn't read may have any type.
    read = tuple(
        fault for name, fault in faults.items() if part.named({name: files[name].shape}).keys() & part.expected
    )
    return Misfits(part.stem, missing, odd, tuple(name for name in have if name not in part.expected), read)


def _unknown(contents: Contents) -> str:
    kinds = _kinds(contents.config)
    called = f" (its config says {', '.join(f'`{kind}`' for kind in kinds)})" if kinds else " (it has no `config.json`)"
    names = ", ".join(family.title for family in known().values())
    near = _nearest(kinds)
    hint = f"; the nearest is {near.title}" if near else ""
    return f"`{contents.name}` is not of a family that can be imported{called}; known families: {names}{hint}"


def _kinds(config: Mapping[str, Any]) -> list[str]:
    listed: Any = config.get("architectures")
    more = cast(list[Any], listed) if isinstance(listed, list) else []
    return [word for word in (config.get("model_type"), config.get("type"), *more) if isinstance(word, str)][:4]


def _nearest(words: Iterable[str]) -> Family | None:
    kinds = {kind.lower(): family for family in known().values() for kind in family.kinds}
    for word in words:
        near = difflib.get_close_matches(word.lower(), kinds, n=1, cutoff=0.5)
        if near:
            return kinds[near[0]]
    return None


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names[:SHOWN]) + _more(len(names))


def _more(count: int) -> str:
    return f" and {count - SHOWN} more" if count > SHOWN else ""


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "one number"
