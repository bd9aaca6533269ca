"""Submits, streams, steers and replays runs."""
