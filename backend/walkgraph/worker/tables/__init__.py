"""A plan's tables as one rank needs them."""
