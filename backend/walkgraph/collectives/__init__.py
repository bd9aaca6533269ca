"""Sums and concatenations over the shards of a group."""
