"""Calls outside device loops: queued, batched, launched, collected."""
