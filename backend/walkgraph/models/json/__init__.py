"""JSON: build it of values, read it, pick values out of it."""
