"""Runs, deployments and traces as text on a terminal."""
