"""How evenly whole experts can be spread over shards, by the loads that texts give them.

    python benchmarks/expert_loads.py --folder /models/Qwen3-30B-A3B --texts texts.txt [--write] [--out loads.json]

Reads the texts, a line each, with the whole model, and counts how many rows chose each expert of each layer. `busiest`
is the load of the busiest shard next to the mean, over all layers: with experts in the order of their numbers, dealt by
their loads, and with as many redundant ones. `--write` puts the loads beside the weights, where groups with
`expert_parallel` find them. `--check` counts random tokens with a tiny model of random weights, and writes nothing.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import _common as common
import torch
from torch import Tensor

from walkgraph.architectures.language.expert_loads import expert_loads
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.architectures.language.weights import draw_language_model, load_language_model
from walkgraph.checkpoints.files import tokenizer_file
from walkgraph.checkpoints.sharding.experts import LOADS, loads_text, spread
from walkgraph.checkpoints.tokenizer import Trained
from walkgraph.models.llm.config import read_llm
from walkgraph.models.llm.presets import LLM

LONGEST = 1024
"""Tokens of a text that are read."""


def main() -> None:
    given = options()
    on: dict[str, Any] = {"device": torch.device(given.device), "dtype": getattr(torch, given.dtype)}
    if given.check:
        model = draw_language_model(LLM["qwen3-moe-tiny"].llm, 0, **on)
    else:
        model = load_language_model(given.folder, read_llm(given.folder).llm, **on)
    loads = expert_loads(model, texts(given, model))
    common.show("busiest", rows := [*evenness(loads, given.shards, given.redundant)])
    if given.write and not given.check:
        (given.folder / LOADS).write_text(loads_text(loads))
    common.write(None if given.check else given.out, given.device, {"busiest": rows})


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="of the weights, as downloaded")
    parser.add_argument("--texts", type=Path, help="a file with a text in each line")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--redundant", type=int, nargs="+", default=[0, 8, 16])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    if given.check:
        given.device, given.shards, given.redundant = "cpu", [2, 4], [0, 4]
    elif given.folder is None or given.texts is None:
        parser.error("--folder and --texts are needed")
    given.dtype = "bfloat16" if given.device.startswith("cuda") else "float32"
    return given


def texts(given: argparse.Namespace, model: LanguageModel) -> Iterator[Tensor]:
    if given.check:
        generator = torch.Generator().manual_seed(0)
        yield from torch.randint(0, model.config.vocab, (4, 32), generator=generator)
        return
    tokenizer = Trained(tokenizer_file(given.folder), plain=True)
    for line in given.texts.read_text().splitlines():
        ids = tokenizer.encode(line)[:LONGEST]
        if ids:
            yield torch.tensor(ids, device=given.device)


def evenness(
    loads: Mapping[int, Sequence[int]], shards: Sequence[int], redundant: Sequence[int]
) -> Iterator[dict[str, Any]]:
    for count in shards:
        row: dict[str, Any] = {"shards": count, "in order": busiest(loads, count, None)}
        yield row | {f"dealt, {more} redundant": busiest(loads, count, more) for more in redundant}


def busiest(loads: Mapping[int, Sequence[int]], count: int, redundant: int | None) -> float:
    """The busiest shard's load next to the mean, over the layers, which wait for each other; `redundant` None: experts
    in the order of their numbers."""
    worst = whole = 0.0
    for load in loads.values():
        each = len(load) // count
        held = spread(load, count, redundant) if redundant is not None else [
            range(shard * each, (shard + 1) * each) for shard in range(count)
        ]  # fmt: skip
        holders = Counter(expert for mine in held for expert in mine)
        worst += max(sum(load[expert] / holders[expert] for expert in mine) for mine in held)
        whole += sum(load) / count
    return worst / whole


if __name__ == "__main__":
    main()
