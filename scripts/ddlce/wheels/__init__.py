"""Packages made from wheels: one mechanism, from a wheel's metadata to a recipe."""

from ddlce.wheels.recipe import WheelRecipe, wheel_packages, wheel_recipes

__all__ = ["WheelRecipe", "wheel_packages", "wheel_recipes"]
