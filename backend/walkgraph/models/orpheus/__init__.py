"""Orpheus: speaks a text, as audio codes that SNAC turns into sound."""
