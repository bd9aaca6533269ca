"""Declares the components. The service imports this file, so it must not import torch."""

from walkgraph.graph.catalogue import Component, Param, port

COMPONENTS = (
    Component(
        name="edges.sobel",
        description="Measures the change of brightness at each pixel with Sobel's two kernels.",
        inputs=(port("pixels", "pixels: float[3, h, w]", description="RGB in [-1, 1]"),),
        outputs=(port("pixels", "pixels: float[3, h, w]", description="grey in [-1, 1]; flat areas are black"),),
        params={
            "gain": Param(type="number", default=1.0, min=0.1, max=10.0, description="Brightness of an edge."),
        },
        network="walkgraph_edges.operators:Sobel",
    ),
)
