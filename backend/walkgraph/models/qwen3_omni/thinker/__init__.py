"""The thinker of Qwen3-Omni: a language model with experts that also reads rows of sound, pictures and video."""
