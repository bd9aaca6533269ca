"""Memory: the amount that a plan needs, and the amount that a request may take."""
