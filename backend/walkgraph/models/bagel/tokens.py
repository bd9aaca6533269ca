"""BAGEL's step of one token: the text expert over a paged context, then sampling of the next token.

The context may hold pictures; a token's rope position is then smaller than the number of tokens before it.

Shape letters: B rows.
"""

from collections.abc import Mapping
from typing import Any

import torch

from walkgraph.abi.calls import Scalar
from walkgraph.abi.step import Row, StepBatch, StepOutputs, StepSpec
from walkgraph.architectures.language.decoding import Sampling, step_logits, step_sampling
from walkgraph.layers.sampling import sample
from walkgraph.models.bagel.model import Bagel

_TOKEN = Row((1,), torch.int64)
SAMPLING: Sampling = {
    "temperature": ("temperature", torch.float32),
    "top_k": ("top_k", torch.int64),
    "top_p": ("top_p", torch.float32),
}


def token_spec(model: Bagel, inputs: Mapping[str, Any], params: Mapping[str, Scalar]) -> StepSpec | None:
    """The spec of a call with a value at `token` and at no other port; None for any other."""
    if [port for port, value in inputs.items() if value is not None] != ["token"]:
        return None
    return StepSpec(
        inputs={"token": _TOKEN},
        outputs={"token": _TOKEN, "stop": Row((), torch.bool)},
        params={name: dtype for name, (_, dtype) in SAMPLING.items()},
        appends={"kv": 1},
        advances={"kv": 1},
        names={"kv": "token"},
        invariant=True,
    )


def token_step(model: Bagel, batch: StepBatch) -> StepOutputs:
    """Append a token to every row's `kv`, and sample the next one. A row with a token outside the vocabulary, or with
    logits that are NaN, is not finite."""
    given, slot, language = batch.inputs["token"][:, 0], batch.paged["kv"], model.language_model
    token = given.clamp(0, model.config.llm.vocab - 1)
    logits = step_logits(language.model, language.lm_head.weight, token, slot)
    following = sample(logits, step_sampling(batch, slot, SAMPLING))
    ports = {"token": following.clamp(min=0)[:, None], "stop": following == model.config.tokens.eos}
    return StepOutputs(ports, (following >= 0) & (given == token))
