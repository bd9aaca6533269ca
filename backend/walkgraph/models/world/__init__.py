"""A toy world of rooms and a robot, and a painter that shows what a model imagines of it."""
