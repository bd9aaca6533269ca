"""The largest numbers accepted from configs.

Sizes are bounded because tables, loops and tensors are made from them: far above any published model, and far below
sizes whose tables a host couldn't hold.
"""

LAYERS = 1024
WIDTH = 2**17
HIDDEN = 2**20
HEADS = 4096
EXPERTS = 4096
ALL_EXPERTS = 2**16
"""Experts of all layers."""
HEAD_DIM = 8192
VOCAB = 2**24
PATCH = 1024
"""Pixels along the side of a patch."""
SIDE = 4096
"""Cells along the side of a table of positions."""
EPS = 1.0
BASE = 1e12
"""Base of rotary positions."""
