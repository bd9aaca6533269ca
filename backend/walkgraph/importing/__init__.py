"""A folder of public weights -> a graph and placements that serve it. Reads configs and headers alone, and no torch."""
