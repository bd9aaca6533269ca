"""Agents: conversations with a model that calls tools, turn by turn."""
