"""Expressions: syntax, values, ranges, arithmetic in float32."""
