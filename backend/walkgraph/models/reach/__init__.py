"""A toy world of a robot's arm that reaches for coloured things; the starter `reach` was trained in it."""
