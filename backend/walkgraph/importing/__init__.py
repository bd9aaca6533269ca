"""A folder of public weights -> a graph and placements that serve it. Reads only configs and headers; no torch."""
