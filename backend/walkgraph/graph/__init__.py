"""The graph: the parts of a model and its Walks, as frozen data with checks. No torch, no I/O."""
