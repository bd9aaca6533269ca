"""Calls of runs: of tasks in this service, and their answers."""
