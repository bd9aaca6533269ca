"""Load on a running deployment, what it answered by the clock, and a report of it."""
