"""Components without a model, for tests and measurements of the engine."""
