"""The interface between models and engine: operators, their calls and steps, the states that they read."""
