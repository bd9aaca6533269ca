"""One file a family that can be imported: its `FAMILY`."""
