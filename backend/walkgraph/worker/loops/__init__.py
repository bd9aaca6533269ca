"""Device loops as the worker sees them: lowered for the engine, with their values returned to the run."""
