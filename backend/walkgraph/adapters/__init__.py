"""Operators of plug-ins: Python functions, modules of torch, model files. Only workers import it."""
