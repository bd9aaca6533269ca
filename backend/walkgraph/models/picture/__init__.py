"""Pictures cut, put together, masked, changed and compared, as pixels in [-1, 1]."""
