"""SNAC: turns audio codes into sound."""
