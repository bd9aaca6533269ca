"""Deployments with their versions and documents."""
