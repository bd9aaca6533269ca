"""Facts about a machine, and the findings for an installation."""
