"""Random Walks as hypothesis draws them; `walkgraph.simulation.reference.random_walks` says what they are."""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from walkgraph.graph.document import Graph
from walkgraph.simulation.reference.random_walks import (
    CATALOGUE,
    OUTPUTS,
    PARAMS,
    PORTS,
    REASONS,
    RESIDENT,
    followed_graph,
    mix,
    plain,
    random_graph,
)

__all__ = ["CATALOGUE", "OUTPUTS", "PARAMS", "PORTS", "REASONS", "RESIDENT", "followed", "graphs", "mix", "plain"]

T = TypeVar("T")


class HypothesisDraw:
    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def integer(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def one(self, of: Sequence[T]) -> T:
        return self._draw(st.sampled_from(of))

    def flag(self) -> bool:
        return self._draw(st.booleans())

    def shuffled(self, of: Sequence[T]) -> list[T]:
        return self._draw(st.permutations(of))


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    return random_graph(HypothesisDraw(draw))


@st.composite
def followed(draw: st.DrawFn) -> Graph:
    return followed_graph(HypothesisDraw(draw))
