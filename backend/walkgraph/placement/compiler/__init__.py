"""Graph and placement into a plan's tables."""
