"""Device loops as the worker sees them: lowered for the engine, and what their values mean for the run."""
