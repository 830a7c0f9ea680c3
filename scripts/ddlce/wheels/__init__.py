"""Packages made from wheels: one mechanism, from a wheel's metadata to a recipe."""

from ddlce.wheels.recipe import Others, wheel_packages, wheel_recipes

__all__ = ["Others", "wheel_packages", "wheel_recipes"]
