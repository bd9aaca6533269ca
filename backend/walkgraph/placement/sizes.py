"""Contents and sizes of weights, found without torch: from the headers of safetensors files, or from a table of shapes.

A *part* is loaded by an operator as a whole; two components that read one part share it on a rank. Numbers become bytes
by the rank's device: GPUs hold weights, activations and caches in 16 bits, CPUs in 32.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import walkgraph
from walkgraph import wrap
from walkgraph.checkpoints.decoder import StackSizes
from walkgraph.checkpoints.files import stems, tensors, tokenizer_file
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.checkpoints.sharding.experts import ExpertParallel
from walkgraph.checkpoints.sharding.language import EXPERTS, shard_config, shard_numbers, shardable
from walkgraph.errors import InvalidInput, NotFound, Refused
from walkgraph.graph.catalogue import Catalogue
from walkgraph.graph.document import Graph, Weights
from walkgraph.graph.problems import Problem

_STARTERS = Path(walkgraph.__file__).parent / "starters"
MIB = 2**20
SCALED = 512
"""Numbers in eight bits that share a scale of 32 bits: a row of a matrix, which has as many in models of full size."""
GROUPED = 128
"""Numbers in four bits that share a scale of the rank's type."""
_NO_WEIGHTS = frozenset({".json", ".txt", ".md", ".safetensors"})
_FORMATS = ("*.safetensors", "*.onnx")
_NAMED = re.compile(r"[\w\-.]+")
"""Folders that a graph can name."""
EVERY = "*"
_LINEAR = re.compile(r"(^|\.)model\.layers\.\d+\.\w+\.\w+_proj\w*\.weight")
"""Names of the tensors of a decoder's linears."""
TOKENIZER = "tokenizer"
"""As an entry of a family's `holds`."""


@dataclass(frozen=True, kw_only=True)
class Part:
    stem: str
    """Stem of its safetensors files in a weights folder: one file, or shards; `EVERY` for all of the folder's."""
    file: str | None = None
    """A file of another format instead: what lies beside it belongs to it, and counts with its bytes."""
    exact: bool = False
    """Kept in 32 bits on every device."""
    reads: Callable[[str], bool] = lambda name: True
    """True for a tensor, by its name in the files, that belongs to the part, where several parts share a stem."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One named configuration of a family."""

    parts: Mapping[str, int]
    """Part -> count of numbers."""
    caches: Mapping[str, int] = field(default_factory=dict[str, int])
    """Component -> numbers that one token takes in each of its paged states."""
    workspace: Mapping[str, int] = field(default_factory=dict[str, int])
    """Component -> numbers in the activations of its largest batch; an estimate, rounded up."""
    experts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Part -> how many of its numbers are of experts, which may be kept in eight bits."""
    linears: Mapping[str, int] = field(default_factory=dict[str, int])
    """Part -> how many of its numbers are of a decoder's linears, which may be kept in four bits."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True)
class FamilySizes:
    parts: Mapping[str, Part]
    components: Mapping[str, tuple[str, ...]]
    """Component -> the parts that it loads."""
    shapes: Mapping[str, Shape]
    """Shapes for `random:` sources, by name."""
    caches_of: Callable[[Path], Mapping[str, int]] | None = None
    """Reads a weights folder's config; raises InvalidInput or NotFound for a config that can't be served. None: the
    family has no config."""
    unsized: bool = False
    """Its `random:` weights are drawn by code that plans don't run, so their size is not known before."""
    holds: frozenset[str] = frozenset()
    """Contents beside the weights that components of any family can use: `tokenizer`."""
    divided: Callable[[str | Path], Mapping[str, LanguageConfig]] = lambda source: {}
    """Takes the name of a shape, or a weights folder whose config has been read: part -> the network that a
    tensor-parallel group divides. Components that read the part are declared `tensor_parallel`."""


@dataclass(frozen=True, kw_only=True)
class WeightSizes:
    """The known sizes of one weight set."""

    numbers: Mapping[str, int]
    """Part -> count of numbers."""
    exact: frozenset[str]
    components: Mapping[str, tuple[str, ...]]
    caches: Mapping[str, int]
    workspace: Mapping[str, int]
    experts: Mapping[str, int] = field(default_factory=dict[str, int])
    """As in `Shape`."""
    linears: Mapping[str, int] = field(default_factory=dict[str, int])
    """Part -> count of numbers, as in `Shape`."""
    divided: Mapping[str, LanguageConfig] = field(default_factory=dict[str, LanguageConfig])
    """Part -> the network that a tensor-parallel group divides."""

    @property
    def mixtures(self) -> bool:
        """True if a network that a group divides has experts."""
        return any(llm.moe is not None for llm in self.divided.values())

    def indivisible(self, count: int, how: ExpertParallel | None = None) -> str | None:
        """The reason that the networks can't be divided over `count` shards, in a clause; None if they can. `how`: with
        whole experts, if given."""
        return next(filter(None, (shardable(llm, count, how) for llm in self.divided.values())), None)

    def shard(self, count: int, how: ExpertParallel | None = None) -> "WeightSizes":
        """The sizes on one of `count` shards. Raises ValueError if the networks can't be divided."""
        if count == 1:
            return self
        shards = {part: shard_config(llm, count, how) for part, llm in self.divided.items()}
        caches = {
            component: token_numbers_of(shards[part])
            for component, parts in self.components.items()
            for part in parts
            if part in shards and component in self.caches
        }

        def numbers(counts: Callable[[str], bool] = lambda name: True) -> dict[str, int]:
            return {part: shard_numbers(llm, count, counts, how) for part, llm in self.divided.items()}

        linears = {part: number for part, number in numbers(_of_linears).items() if self.linears.get(part)}
        return replace(
            self,
            numbers={**self.numbers, **numbers()},
            experts={**self.experts, **numbers(_of_experts)},
            linears={**self.linears, **linears},
            caches={**self.caches, **caches},
            divided={},
        )

    def part_bytes(self, part: str, itemsize: int, precision: str = "bf16") -> int:
        """`precision`: the format of what may be kept in fewer bits; `bf16`: the rank's type."""
        numbers, size = self.numbers.get(part, 0), 4 if part in self.exact else itemsize
        if precision == "fp8":
            experts = self.experts.get(part, 0)
            return (numbers - experts) * size + experts + experts * 4 // SCALED
        if precision == "int4":
            linears = self.linears.get(part, 0)
            return (numbers - linears) * size + linears // 2 + linears * itemsize // GROUPED
        return numbers * size


def token_numbers(layers: int, kv_heads: int, head_dim: int) -> int:
    """Numbers that one token takes in a paged state: a key and a value for every layer and key/value head."""
    return 2 * layers * kv_heads * head_dim


def token_numbers_of(stack: StackSizes) -> int:
    return token_numbers(stack.layers, stack.kv_heads, stack.head_dim)


Sizes = Callable[[Weights], WeightSizes]
"""Raises InvalidInput or NotFound, with advice, if a source's sizes can't be found."""
Holdings = Callable[[Weights], frozenset[str]]
"""The contents of a source beside its weights; raises as `Sizes` does if the source isn't there."""


def find_sizes(families: Mapping[str, FamilySizes], roots: Sequence[Path] = ()) -> Sizes:
    """Sizes of the given families (`components.families()`); checkpoints are searched for under the roots."""
    return partial(_sizes, families, tuple(roots))


def find_holdings(families: Mapping[str, FamilySizes], roots: Sequence[Path] = ()) -> Holdings:
    """Contents of sources without reading their weights, for checks of graphs that are being drawn."""
    return partial(_holdings, families, tuple(roots))


def not_here(graph: Graph, catalogue: Catalogue, holdings: Holdings) -> Iterator[Problem]:
    """Problems that keep a graph's weights from being loaded on this machine, each at its place in the graph."""
    held: dict[str, frozenset[str]] = {}
    for name, weights in graph.weights.items():
        try:
            held[name] = holdings(weights)
        except InvalidInput as error:
            yield absent(name, weights, error)
    for name, node in graph.nodes.items():
        component, found = catalogue.get(node.component), held.get(node.weights or "")
        if component is None or found is None or component.reads in {None, *found}:
            continue
        if graph.weights[node.weights or ""].family in component.fitting:
            message = (
                f"`{node.component}` reads the {component.reads} of `{node.weights}`, and that folder has none; put "
                f"it beside the weights, or name others"
            )
            yield Problem(f"no_{component.reads}", f"/nodes/{name}/weights", message, "warning")


def absent(name: str, weights: Weights, error: InvalidInput) -> Problem:
    """An error of `Sizes` or `Holdings` as a problem of the graph."""
    at, text = f"/weights/{name}/source", f"weights `{name}`: {error}"
    if weights.source.startswith("random:"):
        return Problem("unknown_size", at, f"{text}; the budgets leave them out", "warning")
    return Problem("no_weights", at, text, "warning")


def weights_folder(source: str, roots: Sequence[Path]) -> Path:
    """The folder of a `starter:` or `checkpoint:` source that holds its weights; raises NotFound if it isn't there, and
    Refused if it has only formats that are never loaded.

    Starters are in the package, checkpoints directly under the roots of the server's settings.
    """
    kind, _, name = source.partition(":")
    folders = {"starter": [_STARTERS], "checkpoint": list(roots)}.get(kind, [])
    known = {folder.name: folder for root in reversed(folders) for folder in _weights_in(root)}
    if name not in known:
        _refuse_pickles(name, folders)
        place = "in this installation" if kind == "starter" else "under the weight roots of the server's settings"
        have = ", ".join(f"`{name}`" for name in sorted(known) if _NAMED.fullmatch(name)) or "none"
        raise NotFound(f"there are no weights `{name}` {place} (found: {have}); put the folder there, or name another")
    return known[name]


def _weights_in(root: Path) -> list[Path]:
    """Folders with weights. Only listed folders can be named, so no name leads out of its root. Links among them are
    followed: who can write into a root decides what is served."""
    with suppress(OSError):  # a root that can't be read has none
        return [folder for folder in root.iterdir() if _holds_weights(folder)] if root.is_dir() else []
    return []


def _holds_weights(folder: Path) -> bool:
    return any(any(folder.glob(pattern)) for pattern in _FORMATS)


def _refuse_pickles(name: str, folders: Sequence[Path]) -> None:
    """Raises Refused if a folder of that name has weights in formats alone that are never loaded."""
    for root in folders:
        with suppress(OSError):
            for folder in root.iterdir():
                files = sorted(path.name for path in folder.iterdir()) if folder.name == name else []
                if why := next(filter(None, map(wrap.refused, files)), None):
                    raise Refused(f"the weights `{name}` can't be used: {why}")


def _source(
    families: Mapping[str, FamilySizes], roots: Sequence[Path], weights: Weights
) -> tuple[FamilySizes, Shape | Path]:
    """The family, and the shape that a source draws or the folder that it names."""
    family = families.get(weights.family)
    if family is None:
        raise NotFound(f"the sizes of family `{weights.family}` are not known")
    kind, _, rest = weights.source.partition(":")
    if kind != "random":
        return family, weights_folder(weights.source, roots)
    shape = family.shapes.get(rest.rpartition(":")[0])
    if family.unsized:
        raise NotFound(f"how large `{weights.source}` is of `{weights.family}` is known once it is loaded")
    if shape is None:
        raise NotFound(
            f"`{weights.source}` names no shape of family `{weights.family}`; use one of {sorted(family.shapes)}"
        )
    return family, shape


def _holdings(families: Mapping[str, FamilySizes], roots: Sequence[Path], weights: Weights) -> frozenset[str]:
    family, found = _source(families, roots, weights)
    # Random weights use a tokenizer of bytes.
    return family.holds if isinstance(found, Shape) or has_tokenizer(found) else family.holds - {TOKENIZER}


def has_tokenizer(folder: Path) -> bool:
    try:
        tokenizer_file(folder)
    except NotFound:
        return False
    return True


def _sizes(families: Mapping[str, FamilySizes], roots: Sequence[Path], weights: Weights) -> WeightSizes:
    family, found = _source(families, roots, weights)
    shape = found if isinstance(found, Shape) else _shape_of(family, found)
    named = weights.source.partition(":")[2].rpartition(":")[0] if isinstance(found, Shape) else found
    exact = frozenset(name for name, part in family.parts.items() if part.exact)
    return WeightSizes(
        numbers=shape.parts,
        exact=exact,
        components=family.components,
        caches=shape.caches,
        workspace=shape.workspace,
        experts=shape.experts,
        divided=family.divided(named),
        linears=shape.linears,
    )


def _shape_of(family: FamilySizes, folder: Path) -> Shape:
    """The shape of a weights folder. Its workspace is that of the largest known shape, scaled by the weights."""
    there = stems(folder)
    parts = {name: _numbers_of(folder, part, there) for name, part in family.parts.items()}
    experts = {name: _numbers_of(folder, part, there, _of_experts) for name, part in family.parts.items()}
    linears = {name: _numbers_of(folder, part, there, _of_linears) for name, part in family.parts.items()}
    caches: Mapping[str, int] = family.caches_of(folder) if family.caches_of else dict[str, int]()
    if not family.shapes:
        return Shape(parts=parts, caches=caches, experts=experts, linears=linears)
    known = max(family.shapes.values(), key=lambda shape: shape.total)
    scale = sum(parts.values()) / known.total
    return Shape(
        parts=parts,
        caches=caches,
        workspace={name: math.ceil(size * scale) for name, size in known.workspace.items()},
        experts=experts,
        linears=linears,
    )


def _of_experts(name: str) -> bool:
    return EXPERTS in name


def _of_linears(name: str) -> bool:
    return EXPERTS not in name and _LINEAR.search(name) is not None


def _numbers_of(folder: Path, part: Part, there: Sequence[str], counts: Callable[[str], bool] | None = None) -> int:
    """Numbers that a part holds in a folder with these stems, or those of the tensors alone that `counts` is true for,
    by their names; 0 if it isn't there."""
    if counts and part.file is not None:
        return 0
    if part.file is not None:
        files = [path for path in folder.iterdir() if path.is_file() and path.suffix not in _NO_WEIGHTS]
        return sum(path.stat().st_size for path in files) // 4
    stems_of = there if part.stem == EVERY else [part.stem] if part.stem in there else []
    found = (pair for stem in stems_of for pair in tensors(folder, stem).items())
    return sum(
        math.prod(tensor.shape) for name, tensor in found if part.reads(name) and (counts is None or counts(name))
    )
