"""A toy world of a robot arm that reaches for coloured targets; the starter `reach` was trained in it."""
