"""Qwen3-Omni: declarations only, so that its graph can be drawn, checked and planned."""
