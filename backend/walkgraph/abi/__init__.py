"""What a model implements and an engine calls: operators, their calls and steps, the states that they read."""
