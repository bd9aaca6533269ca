"""Probes of values: statistics, digests, previews."""
