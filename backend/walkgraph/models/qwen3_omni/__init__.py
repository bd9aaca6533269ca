"""Qwen3-Omni: declarations alone, so that its graph can be drawn, checked and planned."""
