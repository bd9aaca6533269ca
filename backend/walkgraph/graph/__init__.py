"""The graph: what a model is made of and how its Walks run, as frozen data with checks. No torch, no I/O."""
