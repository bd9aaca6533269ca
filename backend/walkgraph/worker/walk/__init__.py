"""One run on one rank: its steps, values, streams and times."""
