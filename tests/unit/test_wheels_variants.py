"""Tables of wheels beside the main one: a build for CUDA of what has a build for CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ddlce.errors import InputError
from ddlce.model.recipe import Recipe
from ddlce.model.source import Source, SourcesLock
from ddlce.model.target import Target
from ddlce.wheels import Others, wheel_recipes
from ddlce.wheels.depends import KnownPackage
from support.wheelfiles import lock_wheel, make_wheel

METADATA = ("License-Expression: MIT", "Home-page: https://d.org")


def demo_recipe(
    folder: Path, entry: dict[str, Any] | None, *sources: Source, others: Others | None = None
) -> Recipe:
    """The recipe of `demo`, the only package of a table in `folder`.

    Args:
        folder: where the table is written.
        entry: what the table says of it.
        sources: what is locked; by default a wheel of it.
        others: what other tables have.
    """
    manifest = folder / "cuda130.yaml"
    manifest.write_text(yaml.safe_dump({"wheels": {"demo": entry}}))
    lock = SourcesLock(sources=[*(sources or (lock_wheel(make_wheel(folder)),))])
    (recipe,) = wheel_recipes(manifest, lock, Target("linux-64", "3.11"), others)
    return recipe


def test_one_of_several_locked_versions_is_named(tmp_path: Path) -> None:
    made = [lock_wheel(make_wheel(tmp_path, "demo", v)) for v in ("1.0", "1.0+cpu")]
    for source in made:
        recipe = demo_recipe(tmp_path, {"version": source.version}, *made)
        assert recipe.data["source"][0]["sha256"] == source.sha256
    with pytest.raises(InputError, match=r"no wheel of demo==2\.0 is locked"):
        demo_recipe(tmp_path, {"version": "2.0"}, *made)


def test_links_into_the_prefix_and_a_build_that_none_prefers(tmp_path: Path) -> None:
    entry = {"links": {"nvidia/cu13/lib": "lib"}, "prefer_others": True, "why": "its RPATH"}
    build = demo_recipe(tmp_path, entry).data["build"]
    assert build["script"][1:] == [
        'mkdir -p "$PREFIX/lib/python3.11/site-packages/nvidia/cu13"',
        'ln -s ../../../.. "$PREFIX/lib/python3.11/site-packages/nvidia/cu13/lib"',
    ]
    assert build["variant"] == {"down_prioritize_variant": 1}


def test_a_table_beside_another_finds_its_packages_and_libraries(tmp_path: Path) -> None:
    source = lock_wheel(make_wheel(tmp_path, metadata=(*METADATA, "Requires-Dist: other")))
    wheel = source.wheel
    assert wheel is not None
    needy = source.model_copy(update={"wheel": wheel.model_copy(update={"needed": ["libx.so.1"]})})
    others = Others({"other": KnownPackage("py-other", "2.0")}, {"libx.so.1": "libx"})
    recipe = demo_recipe(tmp_path, None, needy, others=others)
    assert {"py-other", "libx"} <= set(recipe.data["requirements"]["run"])
    with pytest.raises(InputError, match=r"demo 1\.0 needs libx\.so\.1"):
        demo_recipe(tmp_path, None, needy)


def test_a_library_that_prefers_its_own_functions(tmp_path: Path) -> None:
    entry = {"symbolic": ["demo/libdemo.so"], "why": "another has the same functions"}
    recipe = demo_recipe(tmp_path, entry)
    assert recipe.data["build"]["script"][1:] == [
        'python3 "$RECIPE_DIR/symbolic.py" "$PREFIX/lib/python3.11/site-packages/demo/libdemo.so"',
    ]
    assert tmp_path / "symbolic.py" in recipe.files
