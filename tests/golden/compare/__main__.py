"""Our models against the published code, on the same random weights, live: prints how far each kind of case is off.

    PYTHONPATH=backend python -m tests.golden.compare FAMILY [CODE]

`FAMILY`: `bagel`, `llama`, `llm`, `pi05`, `qwen3_omni`, `snac` or `vjepa2`. `CODE`: a checkout of the published code;
`llama`, `llm` and `qwen3_omni` read the package `transformers` instead, and `snac` may read an installed one.
CONTRIBUTING says which packages each one wants. Exits with 1 where a case is above its bar.
"""

import argparse
import importlib
import sys
from pathlib import Path

import torch

from tests.golden.compare.table import told

FAMILIES = ("bagel", "llama", "llm", "pi05", "qwen3_omni", "snac", "vjepa2")
"""Modules beside this one, each with `cases`."""
_PACKAGED = ("llama", "llm", "qwen3_omni", "snac")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("family", choices=FAMILIES)
    arguments.add_argument("code", type=Path, nargs="?", help="a checkout of the published code")
    given = arguments.parse_args()
    if given.code is None and given.family not in _PACKAGED:
        arguments.error(f"{given.family} wants a checkout of the published code")
    torch.set_num_threads(1)
    cases = importlib.import_module(f"tests.golden.compare.{given.family}").cases
    return 1 if told(given.family, cases(given.code and given.code.resolve())) else 0


if __name__ == "__main__":
    sys.exit(main())
