"""Qwen3-Omni's thinker against Transformers: talks with rows of media, alone and together, then token by token."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.golden.compare.table import SAME, Case
from tests.golden.qwen3_omni import thinking as tiny
from tests.support.thinking import appended, loaded, read
from tests.unit.engine.plans import outputs


def cases() -> Iterator[Case]:
    from tests.golden.qwen3_omni.make_thinking import answers, reference

    model = reference()
    with torch.no_grad():
        wanted = {name: dict(answers(model, name)) for name in tiny.TALKS}
    with tempfile.TemporaryDirectory() as root:
        tiny.write_folder(Path(root))
        engine = loaded(Path(root), "published")
    together = read(engine, {f"{name}, beside others": name for name in tiny.TALKS})
    for name, want in wanted.items():
        alone = read(engine, {name: name})[name]
        yield Case(f"{name}: the first token", alone[-1]["logits"], want["logits"][0])
        yield Case(
            f"{name}: the first token, in a batch", together[f"{name}, beside others"][-1]["logits"], want["logits"][0]
        )
        hidden = [one["hidden"] for one in alone if "hidden" in one]
        if hidden:
            yield Case(f"{name}: rows that the talker reads", torch.cat(hidden), want["hidden"])
        calls = [appended({"token": torch.tensor([token])}, name, step) for step, token in enumerate(tiny.given())]
        steps = [outputs(engine, one)[0]["logits"] for one in calls]
        yield Case(f"{name}: tokens that are given", torch.stack(steps), want["logits"][1:])
        token, chosen = together[f"{name}, beside others"][-1]["token"], list[int]()
        for step in range(tiny.STEPS):
            chosen.append(int(token))
            token = outputs(engine, appended({"token": token}, f"{name}, beside others", step))[0]["token"]
        yield Case(f"{name}: tokens that are chosen", torch.tensor(chosen), want["ids"], SAME)
