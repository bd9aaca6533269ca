"""Expressions: syntax, values, ranges, numbers in float32."""
