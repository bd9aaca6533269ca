"""Language models against Transformers, which reads the same folders: logits of prompts and of steps."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.golden.compare.table import Case
from tests.support.language import forwarded, read, stepped
from walkgraph.architectures.language.weights import load_language_model
from walkgraph.models.llm.config import read_llm


def cases(_code: Path | None) -> Iterator[Case]:
    from tests.golden.llm_tiny import CONFIGS, VARIANTS, tokens, write_folder
    from tests.golden.make_llm import published

    ids = tokens()
    every = {kind: dict(config) for kind, config in CONFIGS.items()}
    every |= {f"{kind}, {name}": {**CONFIGS[kind], **changed} for name, (kind, changed) in VARIANTS.items()}
    for name, config in every.items():
        with tempfile.TemporaryDirectory() as root:
            folder = write_folder(Path(root), config)
            wanted = published(folder)(ids).logits
            ours = load_language_model(folder, read_llm(folder).llm)
        yield Case(f"{name}: a plain forward", forwarded(ours, ids), wanted)
        yield Case(f"{name}: a prompt", read(ours, ids), wanted)
        yield Case(f"{name}: steps", stepped(ours, ids), wanted)
