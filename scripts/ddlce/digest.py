"""Content digests: what a package is made from, as parts that can be compared.

A recipe's digest covers its files, its rendered outputs with their variants, the sha256 of its
sources, the digests of the recipes that it builds on, and the engine and toolchain. Same digest,
same bytes; the parts are kept beside the built package, so that a plan can say which changed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ddlce.engine.render import ENGINE_VERSION, Output
from ddlce.files import sha256_file
from ddlce.model.recipe import Recipe
from ddlce.platforms import BUILD_PLATFORM
from ddlce.toolchain import toolchain

#: Raise this when the builder itself changes what a package contains.
BUILDER_VERSION = "2"

#: Ten hex digits (40 bits) in file names; the full digest is in the package's metadata. NO_DIGEST
#: of engine/render.py is as long.
SHORT = 10

Parts = dict[str, str]


def digest_parts(
    recipe: Recipe,
    outputs: Iterable[Output],
    dependencies: Mapping[str, str],
    subdir: str = BUILD_PLATFORM,
) -> Parts:
    """The named parts of a recipe's digest.

    Args:
        outputs: its outputs, rendered without a digest.
        dependencies: recipe name → digest of every recipe in its build and host sections.
        subdir: the platform that it is built for.
    """
    outputs = list(outputs)
    parts: Parts = {"builder": BUILDER_VERSION, "engine": ENGINE_VERSION}
    parts |= file_parts(recipe)
    for output in outputs:
        key = f"output {output.name} {json.dumps(output.variant, sort_keys=True)}"
        parts[key] = _hash(output.rendered)
    for source in recipe.sources():
        if "sha256" in source:
            parts[f"source {Path(str(source.get('url', ''))).name}"] = str(source["sha256"])
    for name, digest in dependencies.items():
        parts[f"depends on {name}"] = digest
    if any("c_compiler" in o.variant or "cxx_compiler" in o.variant for o in outputs):
        parts |= {f"tool {name}": version for name, version in toolchain(subdir).items()}
    return parts


def file_parts(recipe: Recipe) -> Parts:
    """The digest's parts for the recipe's files: their content, and whether they are executable.

    `recipes/folders.py` chooses the files, and leaves out those of IGNORED.
    """
    parts: Parts = {}
    for path in recipe.files:
        mode = "x" if path.stat().st_mode & 0o100 else "-"
        # Relative, also where a `path` source lies outside: a tree may be cloned anywhere.
        name = os.path.relpath(path, recipe.folder.resolve())
        parts[f"file {name}"] = mode + sha256_file(path)
    return parts


def combine(parts: Parts) -> str:
    """The digest of the parts: 64 hex digits."""
    return _hash(parts)


def changes(old: Parts, new: Parts) -> list[str]:
    """The differences between two sets of parts, as short phrases for a person."""
    found = [f"{key} changed" for key in new if key in old and old[key] != new[key]]
    found += [f"{key} is new" for key in new if key not in old]
    found += [f"{key} is gone" for key in old if key not in new]
    return found


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
