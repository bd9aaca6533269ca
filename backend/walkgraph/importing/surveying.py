"""The folders under the checkpoint roots: what each holds, what it lacks, and whether its model fits a machine."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from walkgraph.checkpoints.contents import Contents, numbers, read
from walkgraph.checkpoints.family import Published
from walkgraph.errors import NotFound, WalkgraphError
from walkgraph.importing.making import graph_name, make
from walkgraph.importing.recognising import companions, known, misfits_of, recognise
from walkgraph.placement.hardware import Hardware

MOST = 200
"""The most folders of a root that are looked at."""


@dataclass(frozen=True)
class Surveyed:
    """One folder."""

    folder: str
    root: Path
    title: str = ""
    """The family's title; empty for an unknown one."""
    graph: str = ""
    """The name of the graph that an import makes; empty if it can't be imported."""
    parameters: int = 0
    bytes: int = 0
    """The size of the tensors that are read."""
    dtypes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Type -> number of tensors."""
    problems: tuple[str, ...] = ()
    """The faults, in sentences. With any, it can't be imported."""
    placements: tuple[str, ...] = ()
    """Those that fit the machine, the recommended one first."""
    unfit: tuple[str, ...] = ()
    """Why others don't fit, in sentences."""
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Offered:
    """Weights that can be had for a bundled graph."""

    title: str
    graph: str
    """The graph; empty for weights that are used beside another family's."""
    published: tuple[Published, ...]


def offered() -> list[Offered]:
    """The published weights of each family."""
    found = [Offered(family.title, family.graph, family.published) for family in known().values()]
    return [*found, *(Offered(one.title, "", one.published) for one in companions().values())]


def folders(roots: Sequence[Path]) -> list[Path]:
    """The folders directly under the roots that hold weights or a config. Of two with one name the first is used."""
    found: dict[str, Path] = {}
    for root in roots:
        with suppress(OSError):
            listed = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
            for path in listed[:MOST]:
                if any(_telling(path)):
                    found.setdefault(path.name, path)
    return list(found.values())


def folder_of(name: str, roots: Sequence[Path]) -> Path:
    """The folder of that name; only listed ones can be named. Raises NotFound."""
    found = next((path for path in folders(roots) if path.name == name), None)
    if found is None:
        raise NotFound(f"there is no folder `{name[:80]}` with weights under the checkpoint roots of the settings")
    return found


def signature(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Changes whenever a file of the folder does: its files with their sizes and times."""
    with suppress(OSError):
        return tuple(sorted((p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in path.iterdir() if p.is_file()))
    return ()


def survey(path: Path, hardware: Hardware) -> Surveyed:
    """Look at one folder. What can't be read is told as a problem."""
    bare = Surveyed(path.name, path.parent)
    try:
        contents = read(path)
    except WalkgraphError as error:
        return replace(bare, problems=(str(error),))
    beside = _companion(contents)
    if beside is not None:
        return beside
    try:
        found = recognise(contents)
    except WalkgraphError as error:
        size = sum(tensor.bytes for stem in contents.weights.values() for tensor in stem.values())
        return replace(bare, problems=(str(error),), bytes=size)
    seen = replace(
        bare,
        title=found.family.title,
        parameters=found.parameters,
        bytes=found.bytes,
        dtypes=found.dtypes,
        problems=tuple(found.problems()),
    )
    if seen.problems:
        return seen
    try:
        made = make(found, None, hardware)
    except WalkgraphError as error:
        return replace(seen, problems=(str(error),))
    placements = tuple(placement["name"] for placement in made.placements)
    beside_words = tuple(f"`{key}` is read from `{folder}`" for key, folder in made.beside.items())
    return replace(
        seen,
        graph=graph_name(path.name),
        placements=placements,
        unfit=tuple(made.unfit.values()),
        remarks=(*beside_words, *made.warnings),
    )


def _companion(contents: Contents) -> Surveyed | None:
    """A folder whose weights are used beside another family's."""
    for one in companions().values():
        if not contents.weights or not one.recognises(contents):
            continue
        try:
            parts = one.parts(contents)
            faults = tuple(line for part in parts for line in misfits_of(part, contents).sentences())
        except WalkgraphError as error:
            return Surveyed(contents.name, contents.folder.parent, one.title, problems=(str(error),))
        tensors = [tensor for part in parts for tensor in contents.weights.get(part.stem, {}).values()]
        dtypes: dict[str, int] = {}
        for tensor in tensors:
            dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + 1
        return Surveyed(
            contents.name,
            contents.folder.parent,
            one.title,
            parameters=sum(numbers(shape) for part in parts for shape in part.expected.values()),
            bytes=sum(tensor.bytes for tensor in tensors),
            dtypes=dict(sorted(dtypes.items())),
            problems=faults,
            remarks=("It is used by models that need it; import those.",),
        )
    return None


def _telling(path: Path) -> Iterator[Path]:
    """Files that tell of a model."""
    with suppress(OSError):
        for pattern in ("*.safetensors", "config.json", "*.pt", "*.pth", "*.bin", "*.ckpt"):
            yield from path.glob(pattern)
