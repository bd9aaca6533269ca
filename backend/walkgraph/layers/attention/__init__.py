"""Attention over dense tensors, pages and blocks."""
