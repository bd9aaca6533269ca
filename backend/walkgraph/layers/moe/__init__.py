"""Mixtures of experts: a router that chooses a few of many MLPs for each row, and the products of those."""
