"""KServe's inference protocol."""
