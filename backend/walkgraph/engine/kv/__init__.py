"""Cached sequences: pages, pools, states, prefixes, swap, and attention over pages."""
