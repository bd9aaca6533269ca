"""The ranks of a tensor-parallel group: the first one serves, and the others repeat what it does."""
