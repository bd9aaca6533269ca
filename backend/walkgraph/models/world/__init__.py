"""A toy world of rooms and a robot, and a painter of what a model imagines of it."""
