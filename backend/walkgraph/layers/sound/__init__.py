"""Layers of codecs and vocoders, and what surrounds the networks of speech."""
