"""Reading documents: limits, shorthands, well-formedness, messages."""
