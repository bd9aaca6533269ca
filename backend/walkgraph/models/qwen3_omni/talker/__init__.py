"""Qwen3-Omni's voice: the talker, which generates the first code of each frame, and the predictor of the others."""
