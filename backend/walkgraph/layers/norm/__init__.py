"""Norms, plain and modulated."""
