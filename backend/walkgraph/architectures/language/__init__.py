"""Language models: their network, how they read prompts and sample, and the operator that families build on."""
