"""Weights in four bits: the error of linears, layers and logits, and the time of linears next to bfloat16.

    python benchmarks/gpu_int4.py [--model orpheus] [--rows 1 8 16 32 64 256 2048] [--out int4.json] [--check]

`errors`: how far weights, the change that a layer makes to its rows, and logits are from those of the exact weights
(relative L2), in float32. Weights are random and have no outliers, so real weights may be further off; a model's random
layers also pass errors on more than trained ones do. `linears`, with a GPU: microseconds of each linear of a layer with
all that is done in one call, in bfloat16 and in four bits, over the weights of several layers, so that none is in the
cache; `floor` is the time to read the four bits. `--check` runs tiny sizes, also on a CPU, and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import _common as common
import torch
from _linears import MODELS, Shape
from _timed import timed
from torch import Tensor

from walkgraph.architectures.drawn import drawn
from walkgraph.architectures.language.model import LanguageModel
from walkgraph.checkpoints.language import LanguageConfig
from walkgraph.layers.attention.dense_attention import PackedAttend, causal_mask
from walkgraph.layers.decoder import DecoderLayer
from walkgraph.layers.linear.int4 import Int4Weight
from walkgraph.layers.linear.step_linear import linear
from walkgraph.models.orpheus.config import ORPHEUS_3B

TOKENS = 64
"""Rows of the texts whose errors are measured."""
APART = 256 << 20
"""Bytes that are read before a weight is read again: five times an H200's L2."""


def main() -> None:
    given = options()
    torch.manual_seed(0)
    with torch.inference_mode():
        report: dict[str, Any] = {"errors": list(errors(given))}
        common.show("errors", report["errors"])
        if torch.cuda.is_available() or given.check:
            report["linears"] = list(linears(given))
            common.show("linears", report["linears"])
    common.write(None if given.check else given.out, given.device, report)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="orpheus")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 16, 32, 64, 256, 2048])
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 4], help="layers of the models with logits")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    given.device = "cuda" if torch.cuda.is_available() else "cpu"
    if given.check:
        given.rows, given.layers = [2, 70], [1]
    return given


# ── errors ───────────────────────────────────────────────────────────────────────────────────────


def errors(given: argparse.Namespace) -> Iterator[common.Row]:
    for count in given.layers:
        config = replace(ORPHEUS_3B.llm, layers=count, vocab=1024)
        if given.check:
            config = replace(config, width=256, hidden=384, heads=2, kv_heads=1)
        exact, kept = (model(config, form, given.device) for form in ("bf16", "int4"))
        if count == given.layers[0]:
            yield from layer_errors(config, exact, kept)
        yield {"of": f"logits behind {count} layers", "relative": off(*(logits(one) for one in (kept, exact)))}


def model(config: LanguageConfig, form: str, device: str) -> LanguageModel:
    where: dict[str, Any] = {"device": torch.device(device), "dtype": torch.float32, "precision": form}
    return drawn(lambda: LanguageModel(config), 0, **where).pack()


def layer_errors(config: LanguageConfig, exact: LanguageModel, kept: LanguageModel) -> Iterator[common.Row]:
    layers = [one.model.layers[0] for one in (kept, exact)]
    mine, own = (layer.state_dict()["mlp.down_proj.weight"] for layer in layers)
    if not isinstance(mine, Int4Weight):
        raise TypeError("the weights of a layer are not in four bits")
    yield {"of": "weights", "relative": off(mine.plain(), own)}
    x = torch.randn(TOKENS, config.width, device=own.device)
    yield {"of": "change by a layer", "relative": off(*(change(layer, exact, x) for layer in layers))}


def change(layer: Any, whole: LanguageModel, x: Tensor) -> Tensor:
    """The rows that a layer adds to rows x `[R, W]` of one text."""
    attend = PackedAttend((TOKENS,), mask=causal_mask(TOKENS).to(x.device))
    rotation = whole.model.rope(torch.arange(TOKENS, device=x.device))
    found: DecoderLayer = layer
    return found(0, {"": x}, rotation, attend)[""] - x


def logits(one: LanguageModel) -> Tensor:
    device = one.head.device
    ids = torch.randint(0, one.config.vocab, (TOKENS,), generator=torch.Generator().manual_seed(0)).to(device)
    attend = PackedAttend((TOKENS,), mask=causal_mask(TOKENS).to(device))
    return one(ids, torch.arange(TOKENS, device=device), attend)


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


# ── times ────────────────────────────────────────────────────────────────────────────────────────


def linears(given: argparse.Namespace) -> Iterator[common.Row]:
    for shape in MODELS[given.model].shapes:
        if shape.name == "head":
            continue  # stays in 16 bits
        n, k = (shape.width, shape.k) if not given.check else (256, 256)
        one = torch.randn(n, k, device=given.device).div_(k**0.5).bfloat16()
        kept = Int4Weight.of(one)
        for rows in given.rows:
            options = fused(shape, rows, n, k, given.device)
            x = torch.randn(rows, k, device=given.device).bfloat16()
            row: dict[str, Any] = {"linear": shape.name, "rows": rows}
            for way, weight in (("bf16", one), ("int4", kept)):
                weights = copies(weight, 1 if given.check else APART)
                work = partial(multiplied, x, weights, options)
                row[f"{way} us"] = 1e3 * timed(work, captured=given.device == "cuda", seconds=0.3) / len(weights)
            wanted = linear(x, kept.plain(), **options).float()
            row["off"] = off(linear(x, kept, **options).float(), wanted)
            yield row | {"floor us": 1e3 * common.roofline(kept.nbytes)["floor at 3.9"]}


def fused(shape: Shape, rows: int, n: int, k: int, device: str) -> dict[str, Any]:
    """The other work that a step does in the call of the product."""
    options: dict[str, Any] = {"gated": shape.gated}
    if shape.norm:
        options["norm"] = torch.ones(k, device=device).bfloat16()
    if shape.residual:
        options["residual"] = torch.randn(rows, n, device=device).bfloat16()
    return options


def copies(weight: Tensor, nbytes: int) -> list[Tensor]:
    """The weight as often as it takes to read so many bytes."""
    count = max(1, min(64, nbytes // weight.nbytes))
    if isinstance(weight, Int4Weight):
        return [Int4Weight(weight.numbers.clone(), weight.scales.clone(), weight.shape[1]) for _ in range(count)]
    return [weight.clone() for _ in range(count)]


def multiplied(x: Tensor, weights: Sequence[Tensor], options: dict[str, Any]) -> None:
    for weight in weights:
        linear(x, weight, **options)


if __name__ == "__main__":
    main()
