"""Benchmarks: load on a running deployment, its measured answers, and a report."""
