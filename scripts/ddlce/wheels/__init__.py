"""Packages made from wheels: one mechanism, from a wheel's metadata to a recipe."""

from ddlce.wheels.recipe import Others, WheelRecipe, wheel_packages, wheel_recipes

__all__ = ["Others", "WheelRecipe", "wheel_packages", "wheel_recipes"]
