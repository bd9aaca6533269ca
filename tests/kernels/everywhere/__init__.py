"""Kernels compiled for every GPU of a list, without any."""
