"""The host that plans are made for, beyond its memory."""
