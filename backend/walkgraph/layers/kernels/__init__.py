"""Triton kernels of the layers. Only functions that run on CUDA import these modules: triton is an optional package."""
