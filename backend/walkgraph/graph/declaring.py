"""Short ways to declare a family's components: what they have in common is said once."""

from collections.abc import Mapping
from typing import TypedDict, Unpack

from walkgraph import plugins
from walkgraph.graph.catalogue import Category, Component, CostClass, Param, Port, StateUse


class Facts(TypedDict, total=False):
    """Fields of a `Component` beside its name, its sentence and its operator."""

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


class Declarations:
    """Makes the components of one family in `walkgraph.models`."""

    def __init__(self, family: str, **common: Unpack[Facts]) -> None:
        self._family, self._common = family, common

    def __call__(self, name: str, operator: str | None, description: str, **own: Unpack[Facts]) -> Component:
        """`operator`: `module:Class` in the family's folder; None where there is none yet. What it has of its own goes
        before what is common."""
        network = f"{plugins.MODELS}.{self._family}.{operator}" if operator else None
        facts: Facts = {**self._common, **own}
        return Component(name=name, network=network, description=description, **facts)


def sampling_params(*, temperature: float, top_p: float, top_k: int = 0) -> dict[str, Param]:
    """Of components that sample tokens, with their defaults."""
    return {
        "temperature": Param(
            type="number", default=temperature, min=0, max=10, description="0 takes the likeliest token."
        ),
        "top_p": Param(
            type="number", default=top_p, min=0, max=1, description="Sample from the likeliest tokens of this mass."
        ),
        "top_k": Param(
            type="integer", default=top_k, min=0, max=100000, description="Sample from this many tokens; 0: all."
        ),
    }
