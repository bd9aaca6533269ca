"""Limits of eight-bit floats (e4m3)."""

import torch

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
"""The largest e4m3 number."""
LEAST = 1e-30
"""Lower bound of a row's largest number, so that a row of zeros has a scale too."""
