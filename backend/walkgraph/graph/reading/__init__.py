"""Documents read: limits, shorthand, well-formedness, messages."""
