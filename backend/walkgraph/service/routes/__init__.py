"""One file per resource; each has a `router`."""
