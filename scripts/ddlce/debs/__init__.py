"""Packages made from Debian's binaries, where a platform has no wheels: table to recipe."""

from ddlce.debs.manifest import table_platform
from ddlce.debs.recipe import deb_recipes

__all__ = ["deb_recipes", "table_platform"]
