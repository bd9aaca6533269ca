"""Runs of tasks: submitted, streamed, steered, replayed."""
