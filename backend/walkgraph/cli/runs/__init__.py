"""Runs from the command line: requests, results, comparisons."""
