"""Numbers of eight-bit floats (e4m3)."""

import torch

FP8 = torch.float8_e4m3fn
LARGEST = 448.0
"""Of e4m3."""
LEAST = 1e-30
"""Of a row's largest number: a row of zeros has a scale too."""
