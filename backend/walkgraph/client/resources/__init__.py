"""Calls of the SDK by resource of the service."""
