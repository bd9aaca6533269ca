"""Shorthand for declaring a family's components, with their common parts written once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypedDict, Unpack

from walkgraph import plugins
from walkgraph.graph.catalogue import (
    Append,
    Category,
    Component,
    CostClass,
    Example,
    Form,
    Param,
    Port,
    Positions,
    StateUse,
    port,
)

PIXELS = "pixels: float[3, h, w]"
LATENTS = "latents: float[h, w, c]"
APPENDED = port("token", "tokens: int[1]", optional=True, description="one token, appended")
SAMPLED = port("token", "tokens: int[1]", description="the next token, sampled")


class Facts(TypedDict, total=False):
    """The fields of a `Component` other than its name, its description and its operator."""

    former: tuple[str, ...]
    category: Category
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    params: Mapping[str, Param]
    states: tuple[StateUse, ...]
    cost: CostClass
    weights: str | None
    reads: str | None
    host: bool
    resident: bool
    tensor_parallel: bool
    sequence_parallel: bool
    reasons: Mapping[str, tuple[str, ...]]
    itemwise: tuple[str, ...]
    deterministic: bool
    examples: tuple[Example, ...]
    outside: bool
    served: bool


class Bounds(TypedDict, total=False):
    """The fields of a numeric `Param`."""

    min: float
    max: float


class Declarations:
    """Makes components of one family in `walkgraph.models`."""

    def __init__(self, family: str, *, module: str | None = "operators", **common: Unpack[Facts]) -> None:
        """`module`: the file in the family's folder with the operators; None while there are none."""
        self._family, self._module, self._common = family, module, common

    def in_module(self, module: str | None) -> "Declarations":
        """The same declarations for operators in another file."""
        return Declarations(self._family, module=module, **self._common)

    def __call__(self, name: str, description: str, **own: Unpack[Facts]) -> Component:
        """Declare a component. Its operator is the class of that name (`VaeEncoder` for `bagel.vae_encoder`); its own
        fields override the common ones."""
        operator = "".join(word.capitalize() for word in name.removeprefix(f"{self._family}.").split("_"))
        network = f"{plugins.MODELS}.{self._family}.{self._module}:{operator}" if self._module else None
        facts: Facts = {**self._common, **own}
        return Component(name=name, network=network, description=description, **facts)


def kv_cache(
    *appends: str | Append,
    positions: Positions = "per_token",
    access: Literal["read", "write"] = "write",
    token_bytes: int = 0,
) -> StateUse:
    """The slot `kv`; `positions` applies to the ports given by name."""
    made = (Append(port=one, positions=positions) if isinstance(one, str) else one for one in appends)
    return StateUse(slot="kv", kind="paged_kv", access=access, appends=tuple(made), token_bytes=token_bytes)


def integer(description: str = "", *, default: int | None = None, **bounds: Unpack[Bounds]) -> Param:
    return Param(type="integer", default=default, description=description, **bounds)


def number(description: str = "", *, default: float | None = None, **bounds: Unpack[Bounds]) -> Param:
    return Param(type="number", default=default, description=description, **bounds)


def boolean(description: str = "", *, default: bool | None = None) -> Param:
    return Param(type="boolean", default=default, description=description)


def choice(choices: tuple[str, ...], description: str = "", *, default: str | None = None) -> Param:
    return Param(type="string", default=default, choices=choices, description=description)


def literal(param: Param, form: Form = "literal") -> Param:
    """The parameter as one that is read when a node is loaded."""
    return replace(param, form=form)


def sampling_params(*, temperature: float, top_p: float, top_k: int = 0) -> dict[str, Param]:
    """Parameters of components that sample tokens, with these defaults."""
    return {
        "temperature": number(
            "Sampling temperature; 0 always takes the most likely token.", default=temperature, min=0, max=10
        ),
        "top_p": number(
            "Sample from the most likely tokens whose probabilities add up to this.", default=top_p, min=0, max=1
        ),
        "top_k": integer(
            "Sample from this many of the most likely tokens; 0 uses all.", default=top_k, min=0, max=100000
        ),
    }


def penalty_params(*, repetition: float = 1.0) -> dict[str, Param]:
    """Further parameters of components that sample tokens and count those of a run in a state."""
    return {
        "min_p": number(
            "Exclude tokens less likely than this share of the most likely one; 0 excludes none.",
            default=0.0,
            min=0,
            max=1,
        ),
        "repetition_penalty": number("Divides the logits of tokens seen before.", default=repetition, min=1, max=10),
        "presence_penalty": number(
            "Subtracted from the logits of tokens generated before.", default=0.0, min=-2, max=2
        ),
        "frequency_penalty": number(
            "Subtracted from a token's logit once for each time it was generated before.", default=0.0, min=-2, max=2
        ),
    }
