"""Deployments in simulated time: real cores and schedulers over a network, a clock and devices drawn from a seed."""
