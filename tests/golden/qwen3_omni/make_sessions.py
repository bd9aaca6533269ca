"""Writes what `transformers`, which is no requirement of ours, answers in the session of `sessions.py`:

    PYTHONPATH=.:backend:FOLDER python tests/golden/qwen3_omni/make_sessions.py

`sessions.npz` then holds for every turn what `make_whole.py` stores of a talk, for the conversation up to it.
"""

from typing import Any

import numpy as np
import torch

from tests.golden.qwen3_omni import make_seeing, sessions, whole
from tests.golden.qwen3_omni.make_whole import Prompt, answered, published
from walkgraph.models.qwen3_omni.thinker.config import TINY


@torch.no_grad()
def main() -> None:
    processors = make_seeing.Processors()
    model, found = published(), dict[str, Any]()
    turns = list[whole.Turn]()
    for index, asked in enumerate(sessions.ASKED):
        turns.append(whole.Turn("user", asked))
        answer = answered(model, Prompt(turns, processors, heard=True))
        print(index, answer["ids"], answer["codes"].shape, answer["samples"], answer["close"])
        found |= {f"{index}: {key}": value for key, value in answer.items()}
        said = [token for token in answer["ids"].tolist() if token != TINY.marks.im_end]
        turns.append(whole.Turn("assistant", [said]))
    np.savez_compressed(sessions.ANSWERS, **found)


if __name__ == "__main__":
    main()
