"""Reaching the service: addresses, failures, retries."""
