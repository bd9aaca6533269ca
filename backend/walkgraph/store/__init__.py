"""Persistent data: documents and their versions, wanted deployments, finished runs."""
