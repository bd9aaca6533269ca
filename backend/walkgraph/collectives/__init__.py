"""Sums and concatenations over the shards of a tensor-parallel group."""
