"""Further kinds of scenarios, and a world of several deployments."""
