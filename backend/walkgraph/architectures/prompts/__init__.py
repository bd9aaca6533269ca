"""Prompts read in captured forwards."""
