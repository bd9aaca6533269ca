"""Deployments, their versions and documents."""
