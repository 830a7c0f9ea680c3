"""Rendering: from what the author wrote to what it means for one variant (stage 1)."""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import rattler_build
from rattler_build import (
    RattlerBuildError,
    RenderConfig,
    RenderedVariant,
    Stage0Recipe,
)

from ddlce import yamltext
from ddlce.engine.variants import HOST_PLATFORM, Variants, platforms_of
from ddlce.errors import InputError
from ddlce.model.recipe import CUDA, Recipe
from ddlce.platforms import BUILD_PLATFORM, get_platform

#: What stands for the digest while it is being computed: as long as SHORT of digest.py.
NO_DIGEST = "0" * 10

#: The engine's own view of an output, which can be built.
Rendered = RenderedVariant

ENGINE_VERSION = rattler_build.rattler_build_version()


@dataclass(frozen=True)
class Output:
    """One package that a recipe makes for one variant.

    Attributes:
        name, version, build: as in the file name.
        subdir: where the channel holds it: `noarch` or the target platform.
        variant: the variant keys that the recipe uses, with their values.
        build_deps, host_deps, run_deps, test_deps: names of packages, without versions.
        strong_exports, weak_exports: names that it adds to what is built on it.
        ignored_exports: names that nothing adds to it; ignored_from: packages that add nothing.
        rendered: the rendered recipe as plain data.
    """

    name: str
    version: str
    build: str
    subdir: str
    variant: dict[str, str]
    build_deps: frozenset[str]
    host_deps: frozenset[str]
    run_deps: frozenset[str]
    test_deps: frozenset[str]
    strong_exports: frozenset[str]
    weak_exports: frozenset[str]
    ignored_exports: frozenset[str]
    ignored_from: frozenset[str]
    rendered: dict[str, Any] = field(repr=False)

    @property
    def filename(self) -> str:
        """The package's file name."""
        return f"{self.name}-{self.version}-{self.build}.conda"

    @property
    def all_deps(self) -> frozenset[str]:
        """Every package that must exist before this one can be built and tested."""
        return self.build_deps | self.host_deps | self.run_deps | self.test_deps


def render(
    recipe: Recipe,
    variants: Variants,
    subdir: str,
    digest: str = NO_DIGEST,
) -> list[tuple[Output, Rendered]]:
    """Render all outputs of a recipe, in the order in which they must be built.

    Args:
        variants: from `load_variants`.
        subdir: the target platform, e.g. "linux-64".
        digest: the content digest that goes into the build strings.

    Raises:
        InputError: the recipe does not parse or render; names the file and the reason.
    """
    config = RenderConfig(platform=platforms_of(subdir), extra_context={"digest": digest})
    if recipe.cuda:
        ours = {key: [value] for key, value in {**recipe.versions, CUDA: recipe.cuda}.items()}
        variants = variants.merge(Variants.from_yaml(yamltext.dump(ours)))
    try:
        stage0 = _parse(recipe)
        rendered = [(_output(v), v) for v in stage0.render(variants, config)]
        kept = [(o, v) for o, v in rendered if not _skipped(recipe, o, subdir)]
    except (RattlerBuildError, ValueError, TypeError) as error:
        where = f"{recipe.path} ({recipe.name})" if recipe.generated else str(recipe.path)
        raise InputError(
            f"{where}: {plain(str(error))}", f"check it with: ddlce lint {recipe.name}"
        ) from error
    return kept


def _parse(recipe: Recipe) -> Stage0Recipe:
    if not recipe.generated:
        return Stage0Recipe.from_file(recipe.path)
    # Not `from_dict`: it leaves a folder in /tmp behind at each call, and overwrites a recipe's
    # recipe.yaml where it is given one.
    with tempfile.TemporaryDirectory(prefix="ddlce-render-") as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(yamltext.dump(recipe.data))
        return Stage0Recipe.from_file(path)


def with_stored_sources(
    recipe: Recipe, folder: Path, locate: Callable[[str], Path], subdir: str = BUILD_PLATFORM
) -> Recipe:
    """A copy of the recipe in `folder`, ready to be built.

    Each source `url` is replaced by the stored file's; for another platform, the variants carry
    the platform of `host:`, and what may be the machine's has its `machine_libraries`, too.

    Args:
        folder: an empty or missing folder.
        locate: sha256 → path of a source's bytes.
    """
    # Only what the digest covers: the engine puts the whole folder into the package.
    for file in recipe.files:
        if file.is_relative_to(recipe.folder):
            target = folder / file.relative_to(recipe.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    folder.mkdir(parents=True, exist_ok=True)
    data = copy.deepcopy(recipe.data)
    for source in replace(recipe, data=data).sources():
        if "url" in source:
            source["url"] = locate(str(source["sha256"])).as_uri()
        elif "path" in source:
            source["path"] = str((recipe.folder / source["path"]).resolve())
    for output in data.get("outputs", [data]) if subdir != BUILD_PLATFORM else ():
        variant = output.setdefault("build", {}).setdefault("variant", {})
        variant["use_keys"] = [*variant.get("use_keys", ()), HOST_PLATFORM]
    for section in (data, *data.get("outputs", ())):
        linking = (section.get("build") or {}).get("dynamic_linking") or {}
        if allowed := linking.get("missing_dso_allowlist"):
            allowed += [x for x in get_platform(subdir).machine_libraries if x not in allowed]
    path = folder / "recipe.yaml"
    path.write_text(yamltext.dump(data))
    return replace(recipe, path=path, folder=folder, data=data, generated=False)


def plain(text: str) -> str:
    """A message of the engine without colour codes and surrounding space."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


def _skipped(recipe: Recipe, output: Output, subdir: str) -> bool:
    """Whether `build.skip` of the recipe, or of this output, holds for its variant.

    The engine's Python binding renders a skipped output like any other and does not say that it
    is one (0.73), so the conditions are put to its templates one by one.
    """
    sections = [recipe.data, *recipe.data.get("outputs", ())]
    named = [
        section
        for section in sections
        if section is recipe.data or (section.get("package") or {}).get("name") == output.name
    ]
    conditions: list[Any] = []
    for section in named:
        skip = (section.get("build") or {}).get("skip", [])
        conditions += skip if isinstance(skip, list) else [skip]
    return any(_holds(str(condition), output, subdir) for condition in conditions)


def _holds(condition: str, output: Output, subdir: str) -> bool:
    probe = {
        "package": {"name": "probe", "version": "0"},
        "build": {"string": "${{ 1 if " + condition + " else 0 }}"},
    }
    keys = {k: [v] for k, v in output.variant.items() if k != "target_platform"}
    with tempfile.TemporaryDirectory(prefix="ddlce-render-") as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(yamltext.dump(probe))
        variants = Variants.from_yaml(yamltext.dump(keys))
        (found,) = Stage0Recipe.from_file(path).render(
            variants, RenderConfig(platform=platforms_of(subdir))
        )
    return bool(found.recipe.to_dict()["build"]["string"] == "1")


def _output(variant: RenderedVariant) -> Output:
    data = variant.recipe.to_dict()
    build, requirements = data.get("build", {}), data.get("requirements", {})
    exports = requirements.get("run_exports") or {}
    exports = exports if isinstance(exports, dict) else {"weak": exports}
    ignored = requirements.get("ignore_run_exports") or {}
    platform = dict(variant.variant)["target_platform"]
    return Output(
        name=data["package"]["name"],
        version=str(data["package"]["version"]),
        build=build["string"],
        subdir="noarch" if build.get("noarch") else platform,
        variant={k: str(v) for k, v in variant.variant.items() if k != "digest"},
        build_deps=_names(requirements.get("build", ())),
        host_deps=_names(requirements.get("host", ())),
        run_deps=_names(requirements.get("run", ())),
        test_deps=_names(_test_requirements(data.get("tests", ()))),
        strong_exports=_names(exports.get("strong", ())),
        weak_exports=_names(exports.get("weak", ())),
        ignored_exports=_names(ignored.get("by_name", ())),
        ignored_from=_names(ignored.get("from_package", ())),
        rendered=data,
    )


def _test_requirements(tests: list[dict[str, Any]]) -> list[Any]:
    specs: list[Any] = []
    for test in tests:
        needs = test.get("requirements") or {}
        specs += [*needs.get("build", ()), *needs.get("run", ())]
        # The engine leaves out what is the default: pip_check is on unless it says otherwise.
        if "python" in test and test["python"].get("pip_check", True):
            specs.append("pip")
    return specs


def _names(specs: Any) -> frozenset[str]:
    """Package names of rendered requirements; virtual packages are the machine's."""
    names = {_name(spec) for spec in specs}
    return frozenset(n for n in names if n and not n.startswith("__"))


def _name(spec: Any) -> str:
    if isinstance(spec, dict):  # {"pin_subpackage": {"name": …}} and the like
        (inner,) = spec.values()
        return str(inner["name"] if isinstance(inner, dict) else inner)
    return re.split(r"[\s=<>!~\[]", str(spec).strip(), maxsplit=1)[0].lower()
