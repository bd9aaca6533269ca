"""Sound cut, mixed, made louder, split and drawn, as waveforms in [-1, 1]."""
