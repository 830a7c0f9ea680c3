"""Packages made from NVIDIA's wheels: CUDA's libraries, headers and compiler, as they are."""

from ddlce.nvidia.recipe import Toolkit, nvidia_recipes, read_toolkit

__all__ = ["Toolkit", "nvidia_recipes", "read_toolkit"]
