"""A V-JEPA 2-AC in small, that imagines what happens in a world of a shape, walls and an arrow, and plans in it."""
