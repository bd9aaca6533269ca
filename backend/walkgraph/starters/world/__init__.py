"""A small V-JEPA 2-AC that imagines and plans in a world of a shape, walls and an arrow."""
