"""Walkgraph: draw a multimodal model as a graph of components, place it, deploy it, watch it run."""

__version__ = "0.1.0"
