"""The division of weights over the shards of a tensor-parallel group."""
