"""Requests to servers outside, which the service makes."""
