"""The operator beside plain loops, and the graph as Walkgraph checks it."""

import json
from pathlib import Path

import pytest
import torch
from walkgraph_edges.operators import LUMA, edges

from walkgraph.components import catalogue
from walkgraph.graph.check import check

GRAPH = json.loads((Path(__file__).parents[1] / "edges.json").read_text())


def plainly(picture: torch.Tensor, gain: float) -> list[list[float]]:
    """The same pixel by pixel."""
    _, height, width = picture.shape
    grey = [
        [sum(weight * picture[c, y, x].item() for c, weight in enumerate(LUMA)) for x in range(width)]
        for y in range(height)
    ]

    def at(y: int, x: int) -> float:
        return grey[min(max(y, 0), height - 1)][min(max(x, 0), width - 1)]

    found = []
    for y in range(height):
        row = []
        for x in range(width):
            weights = ((-1, 1), (0, 2), (1, 1))
            right = sum(w * (at(y + d, x + 1) - at(y + d, x - 1)) for d, w in weights) / 8
            down = sum(w * (at(y + 1, x + d) - at(y - 1, x + d)) for d, w in weights) / 8
            row.append(max(-1.0, min(1.0, 2 * gain * (right**2 + down**2) ** 0.5 - 1)))
        found.append(row)
    return found


@pytest.mark.parametrize("gain", [0.5, 4.0])
def test_edges_are_those_of_plain_loops(gain: float) -> None:
    pictures = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(3)) * 2 - 1
    found = edges(pictures, torch.tensor([gain, 1.0]))
    assert found.shape == pictures.shape
    torch.testing.assert_close(found[0, 0], torch.tensor(plainly(pictures[0], gain)))
    torch.testing.assert_close(found[1, 2], torch.tensor(plainly(pictures[1], 1.0)))


def test_flat_areas_are_black() -> None:
    assert (edges(torch.full((1, 3, 4, 4), 0.3), torch.ones(1)) == -1).all()


def test_the_graph_is_sound() -> None:
    """Where WALKGRAPH_PLUGINS lists `edges`."""
    assert check(GRAPH, catalogue()).problems == ()
