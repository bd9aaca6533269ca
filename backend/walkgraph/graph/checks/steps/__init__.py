"""Checks of what stands among the steps of tasks: choices, loops and approvals."""
