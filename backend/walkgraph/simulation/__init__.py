"""A deployment in simulated time: real cores and schedulers over a network, a clock and devices that a seed draws."""
