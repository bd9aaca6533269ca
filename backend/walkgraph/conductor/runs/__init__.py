"""Runs: admission, order of outputs, steering, stalls, ends."""
