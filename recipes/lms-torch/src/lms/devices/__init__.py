"""Devices: a CUDA device, and a simulated one with a clock and a meter of bytes."""
