"""Facts of a machine, and what they mean for an installation."""
