"""Components that are Python functions of a plug-in, read from its source without running it."""
