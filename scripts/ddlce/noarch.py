"""Where a `noarch: python` package's files go, as rattler and conda decide it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

#: Where such a package has its modules.
SITE = "site-packages/"


def site_packages(packages: Iterable[Mapping[str, Any]]) -> str:
    """Where the Python among these packages finds what is not its own.

    Args:
        packages: the index's or an environment's record of each.
    """
    for package in packages:
        if package.get("name") == "python":
            major, minor = str(package["version"]).split(".")[:2]
            place = package.get("python_site_packages_path")
            return str(place or f"lib/python{major}.{minor}/site-packages")
    return "site-packages"
