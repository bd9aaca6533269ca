"""Qwen3-Omni's vocoder, Code2Wav: frames of 16 codes to sound at 24 kHz."""
