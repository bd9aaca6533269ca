"""How weights are divided over the shards of a tensor-parallel group."""
