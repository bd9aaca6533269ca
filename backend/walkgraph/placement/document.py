"""The placement document: which rank runs which node, as frozen data (`placements/*.json`).

A later group overrides an earlier one for the same node and Walk; the node `*` stands for all nodes. A group with
`walks` places its nodes only in these Walks.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from walkgraph.checkpoints.limits import EXPERTS
from walkgraph.errors import InvalidInput
from walkgraph.graph.codec import pretty
from walkgraph.graph.document import Graph, Name
from walkgraph.graph.problems import nearest
from walkgraph.ids import Rank
from walkgraph.placement.hardware import Hardware, alone, with_gpus, with_hosts

FORMAT = "walkgraph/placement@1"
SCHEMA_PATH = Path(__file__).with_name("placement-v1.schema.json")
ALL = "*"
PRECISION = "precision"
"""The parameter of components, and the entry of groups, that chooses a number format."""
MAX_RANKS = 512
ANY = "any"
"""In place of a host's name: the plan chooses the host, and another one once that is lost."""
CLUSTER = "cluster"
"""The hosts of the service's cluster, named as hardware to assume."""
UNITS = {
    "B": 1,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}

_MEMORY = r"^\d{1,6}(\.\d{1,6})? ?(%|B|KiB|MiB|GiB|TiB|kB|MB|GB|TB)$"


class Record(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, strict=True, use_attribute_docstrings=True
    )


class Group(Record):
    nodes: tuple[Name | Literal["*"], ...] = Field(min_length=1)
    ranks: tuple[Annotated[int, Field(ge=0, lt=MAX_RANKS)], ...] = Field(min_length=1)
    walks: tuple[Name, ...] | None = Field(default=None, min_length=1)
    """The nodes are here in these Walks only; None: in all Walks."""
    tensor_parallel: int = Field(default=1, ge=1, le=MAX_RANKS)
    """Ranks that divide the weights of its nodes."""
    sequence_parallel: int = Field(default=1, ge=1, le=MAX_RANKS)
    """Ranks that divide the tokens of its nodes' flow steps, each with whole weights."""
    expert_parallel: bool = False
    """Tensor-parallel ranks hold whole experts of mixtures instead of a part of each; it goes for all that these ranks
    hold."""
    redundant_experts: int = Field(default=0, ge=0, le=EXPERTS)
    """Experts of each layer, those with the most work, that two ranks hold with `expert_parallel`."""
    replicas: int = Field(default=1, ge=1, le=MAX_RANKS)
    memory: Annotated[int, Field(ge=1, lt=2**60)] | Annotated[str, Field(pattern=_MEMORY)] | None = None
    """Memory of each rank: bytes, a size (`2GiB`) or a share of the device's free memory (`40%`). None: what is
    left."""
    host: str | None = Field(default=None, max_length=253)
    """The host of its ranks; `any`: a plan chooses it, and another one once that is lost. None: that which they or
    other groups name, or else the one that plans."""
    precision: Literal["bf16", "fp8", "int4"] | None = None
    """Number format of those weights of its nodes that may have it, instead of what nodes say. None: what they say."""

    @property
    def width(self) -> int:
        """Ranks that compute its nodes together, of each replica."""
        return self.tensor_parallel * self.sequence_parallel


class RankDevice(Record):
    rank: int = Field(ge=0, lt=MAX_RANKS)
    device: Annotated[str, Field(pattern=r"^(cpu|cuda:\d{1,3})$")]
    host: str | None = Field(default=None, max_length=253)
    """The host of this rank, for groups that span several; `any`: a plan chooses it. None: that of its groups."""


class Placement(Record):
    format: Literal["walkgraph/placement@1"] = FORMAT
    name: Name
    graph: Name | None = None
    """The graph it was made for; None: any graph that has its names."""
    groups: tuple[Group, ...]
    ranks: tuple[RankDevice, ...]
    transport: Name | None = None
    """The transport of all tensors between ranks, even where another is cheaper. None: the cheapest for each edge."""

    def host(self, rank: int) -> str | None:
        """The host that a rank or its groups name, or `any`; None if none does."""
        return self._hosts.get(rank)

    @property
    def unpinned(self) -> frozenset[int]:
        """The ranks whose host is left to the plan (`any`)."""
        return frozenset(entry.rank for entry in self.ranks if self.host(entry.rank) == ANY)

    def on(self, hosts: Mapping[int, str]) -> "Placement":
        """The same with these ranks on these hosts, and no group that says `any`."""
        groups = [group.model_copy(update={"host": None}) if group.host == ANY else group for group in self.groups]
        return self._placed(groups, {entry.rank: hosts.get(entry.rank, entry.host) for entry in self.ranks})

    def together(self) -> "Placement":
        """The same as if all ranks were on one host."""
        return self._placed([group.model_copy(update={"host": None}) for group in self.groups], {})

    def _placed(self, groups: Iterable[Group], hosts: Mapping[int, str | None]) -> "Placement":
        ranks = (entry.model_copy(update={"host": hosts.get(entry.rank)}) for entry in self.ranks)
        # A copy of the model would keep what it has cached.
        return Placement(
            name=self.name, graph=self.graph, groups=tuple(groups), ranks=tuple(ranks), transport=self.transport
        )

    @cached_property
    def _hosts(self) -> Mapping[int, str]:
        """Ranks with the hosts that they name, or else the first of their groups that names one."""
        found = {entry.rank: entry.host for entry in self.ranks if entry.host is not None}
        for group in self.groups:
            if group.host is not None:
                found = dict.fromkeys(group.ranks, group.host) | found
        return found


def default_placement(graph: Graph, hardware: Hardware) -> Placement:
    """Everything on one rank: the GPU with the most free memory, else the CPU."""
    gpus = [d for d in hardware.devices if d.name != "cpu"]
    device = max(gpus, key=lambda d: d.free).name if gpus else "cpu"
    return Placement(
        name="default",
        graph=graph.name,
        groups=(Group(nodes=(ALL,), ranks=(Rank(0),)),),
        ranks=(RankDevice(rank=0, device=device),),
    )


def size_in_bytes(memory: int | str, free: int) -> int:
    """Bytes of a `memory` entry; a percentage is of `free`. Raises InvalidInput for a text that isn't a size."""
    if isinstance(memory, int):
        return memory
    match = re.fullmatch(r"([\d.]+) ?(%|[A-Za-z]+)", memory)
    if match is None or not re.match(_MEMORY, memory):
        raise InvalidInput(f"`{memory}` is not a size; write bytes, `2GiB` or `40%`")
    number, unit = float(match[1]), match[2]
    return math.floor(number * free / 100) if unit == "%" else math.floor(number * UNITS[unit])


def assume(hardware: Hardware, text: str) -> Hardware:
    """The host as if it had these GPUs, all empty: `3x141GB`. Raises InvalidInput for any other text."""
    count, _, memory = text.partition("x")
    size = size_in_bytes(memory, 0) if re.fullmatch(_MEMORY, memory) else 0
    if not re.fullmatch(r"\d{1,3}", count) or not 1 <= int(count) <= MAX_RANKS or size < 1:
        raise InvalidInput(
            f"`{text[:40]}` describes no hardware; write the number of "
            f"GPUs, at most {MAX_RANKS}, and the memory of each: `3x141GB`"
        )
    return with_gpus(alone(hardware), int(count), size)


def assume_hosts(hardware: Hardware, text: str) -> Hardware:
    """Like `assume`, and also hosts with these GPUs each: `2 hosts x 3x141GB`; `2 hosts` are like this one. Raises
    InvalidInput for any other text."""
    match = re.fullmatch(r"(\d{1,3}) hosts(?: x (.+))?", text)
    if match is None:
        return assume(hardware, text)
    count, gpus = int(match[1]), match[2]
    if not 1 <= count <= MAX_RANKS:
        raise InvalidInput(f"there may be 1 to {MAX_RANKS} hosts: `2 hosts x 3x141GB`")
    return with_hosts(hardware if gpus is None else assume(hardware, gpus), count)


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────


def decode(value: Any) -> Placement:
    """The placement that a JSON value holds; raises InvalidInput for the first thing wrong with it."""
    found = faults(value)
    if found:
        pointer, message = found[0]
        raise InvalidInput(message, pointer)
    return Placement.model_validate_json(json.dumps(value))


def named_hosts(value: dict[str, Any]) -> set[str]:
    """The hosts that a document names, without `any`; empty for one that is none."""
    if faults(value):
        return set()
    placement = decode(value)
    return {host for entry in placement.ranks if (host := placement.host(entry.rank)) and host != ANY}


def encode(placement: Placement) -> dict[str, Any]:
    """The JSON value, without fields at their defaults."""
    return {"format": placement.format} | placement.model_dump(mode="json", exclude_defaults=True)


def faults(value: Any) -> tuple[tuple[str, str], ...]:
    """(JSON pointer, message) for every reason that a value is not a placement."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return (("", "the placement is not a JSON value; write an object of JSON values"),)
    try:
        Placement.model_validate_json(text)
    except ValidationError as error:
        return tuple((_pointer(e["loc"]), _sentence(e["type"], e["loc"], e["msg"])) for e in error.errors())
    return ()


def schema() -> dict[str, Any]:
    """The JSON Schema; `python -m walkgraph.placement.document` rewrites the published file."""
    made = Placement.model_json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:walkgraph:schema:placement:1"}
    return head | made | {"title": "Walkgraph placement"}


def schema_text() -> str:
    """The text of the published file."""
    return pretty(schema()) + "\n"


_KEYS = sorted({*Group.model_fields, *RankDevice.model_fields, *Placement.model_fields})
_TAGS = frozenset({"int", "str", "constrained-int", "constrained-str"})


def _pointer(path: Iterable[int | str]) -> str:
    steps = (str(step) for step in path if not (isinstance(step, str) and _is_tag(step)))
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _is_tag(step: str) -> bool:
    """True if a step of pydantic's path names a member of a union, not a key."""
    return step in _TAGS or "[" in step


def _sentence(kind: str, path: tuple[int | str, ...], message: str) -> str:
    last = str(path[-1])[:80] if path else "the placement"
    if kind == "extra_forbidden":
        return f"`{last}` is not a key here; {nearest(last, _KEYS)}"
    if kind == "missing":
        return f"`{last}` is missing; add it"
    return message[:1].lower() + message[1:].split("\n", maxsplit=1)[0]


if __name__ == "__main__":
    SCHEMA_PATH.write_text(schema_text(), encoding="utf-8")
