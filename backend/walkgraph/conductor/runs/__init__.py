"""Runs: admitted, ordered, steered, watched, ended."""
