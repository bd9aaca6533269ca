"""The ranks of a group that computes nodes together: the first one serves, and the others repeat what it does."""
