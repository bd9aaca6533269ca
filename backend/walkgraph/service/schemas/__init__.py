"""Bodies of requests, and the models of answers."""
