"""Servers that speak OpenAI's API, which the service calls."""
