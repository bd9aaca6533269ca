"""Layers that the networks share: attention's interface, norms, rotary positions, MLPs, a decoder layer.

No model names here."""
