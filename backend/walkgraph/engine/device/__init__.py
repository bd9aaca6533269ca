"""One device: streams, clocks, CUDA graphs."""
