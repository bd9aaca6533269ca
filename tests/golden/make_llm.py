"""Writes the logits that `transformers`, which is no requirement of ours, gives for the models of `llm_tiny`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/make_llm.py

`tests/golden/llm_tiny.npz` then holds the logits float32 `[2, L, V]` of every kind.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.golden.llm_tiny import ANSWERS, CONFIGS, tokens, write_folder


def published(folder: Path) -> Any:
    """The published code's model, which reads the folder itself."""
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def logits_of(config: Mapping[str, Any], ids: Tensor) -> Tensor:
    with tempfile.TemporaryDirectory() as root, torch.no_grad():
        return published(write_folder(Path(root), config))(ids).logits


def main() -> None:
    np.savez(ANSWERS, **{kind: logits_of(config, tokens()).numpy() for kind, config in CONFIGS.items()})


if __name__ == "__main__":
    main()
