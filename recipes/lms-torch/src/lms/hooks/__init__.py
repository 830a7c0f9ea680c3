"""Hooks into PyTorch: saved tensors, uses of parameters, layers, optimizers, compiled graphs."""
