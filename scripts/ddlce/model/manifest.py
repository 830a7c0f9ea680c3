"""`envs/<env>.yaml`: what a release contains, for which platforms, from which channels."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ddlce import yamltext
from ddlce.errors import InputError
from ddlce.model.document import load_model

#: In `channels`: the channel that this tree builds.
OWN_CHANNEL = "ddl-ce"

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
Spec = Annotated[str, Field(min_length=1, pattern=r"^\S.*$")]
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")]
Release = Annotated[str, Field(pattern=r"^\d{4}\.\d{1,2}(\.\d+)?$")]

#: The key of recipes/conda_build_config.yaml with the release of the tree, as its one value.
RELEASE = "ddl_ce_release"


class _Strict(BaseModel):
    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class PlatformSpec(_Strict):
    """What holds on one platform."""

    glibc: Version
    """The oldest glibc that the environment must run on; the solver sees this one (`__glibc`)."""

    specs: list[Spec] = []
    """Packages for this platform only, as match specs."""

    virtual_packages: dict[Annotated[str, Field(pattern=r"^__[a-z]+$")], Version] = {}
    """Further virtual packages that the target machines have, e.g. `__cuda: "12.4"`."""


class Manifest(_Strict):
    """An environment of the distribution, as its author writes it."""

    name: Name
    """The environment's name; also the file's name without `.yaml`."""

    release: Release = ""
    """The release, `YEAR.MONTH` or `YEAR.MONTH.PATCH`, in quotes; by default that of the tree."""

    summary: Annotated[str, Field(min_length=1)]
    """One line that says what the environment is for."""

    channels: Annotated[list[Spec], Field(min_length=1)] = [OWN_CHANNEL]
    """Channels in order of priority: `ddl-ce` is the one built here, others are URLs."""

    platforms: Annotated[
        dict[Annotated[str, Field(pattern=r"^linux-[a-z0-9]+$")], PlatformSpec],
        Field(min_length=1),
    ]
    """The platforms to lock, each with its glibc floor."""

    specs: Annotated[list[Spec], Field(min_length=1)]
    """The packages, as match specs, e.g. `pytorch 2.13.*`."""

    variables: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")], str] = {}
    """Environment variables that activation sets."""

    @property
    def digest(self) -> str:
        """Hex sha256 of what the manifest says; comments and layout do not count."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def specs_for(self, platform: str) -> list[str]:
        """The specs of one platform: the common ones, then its own."""
        return [*self.specs, *self.platforms[platform].specs]

    def cuda(self, platform: str) -> str:
        """The version of CUDA that one platform's machines have; "" for none."""
        wanted = self.platforms.get(platform)
        return wanted.virtual_packages.get("__cuda", "") if wanted else ""


def load_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        InputError: the file is missing, is not YAML, or a field is wrong; names the file, the
            line, the field and the value. Or neither it nor the tree's variants name a release.
    """
    known = sorted(p.stem for p in path.parent.glob("*.yaml"))
    manifest = load_model(
        path,
        Manifest.model_validate,
        lambda _, error: InputError(_explain(path, error), _hint(error)),
        absent=InputError(
            f"there is no environment manifest {path}",
            f"choose one of: {', '.join(known)}" if known else "write one: docs/site-guide.md",
        ),
    )
    if manifest.name != path.stem:
        line = _line(_root(path), ("name",))
        raise InputError(
            f"{path}:{line}: field 'name': {manifest.name!r} is not the file's name {path.stem!r}",
            "rename the file or the environment",
        )
    if manifest.release:
        return manifest
    return manifest.model_copy(update={"release": _release_of_tree(path)})


def _release_of_tree(path: Path) -> str:
    """The release that a tree's variants name, for a manifest that names none."""
    variants = path.parents[1] / "recipes" / "conda_build_config.yaml"
    said = yamltext.load(variants.read_text(encoding="utf-8")) if variants.is_file() else None
    found = said.get(RELEASE) if isinstance(said, dict) else None
    try:
        (release,) = TypeAdapter(list[Release]).validate_python(found, strict=True)
    except ValueError:
        raise InputError(
            f"{path}: there is no field 'release', and {variants} has no release in {RELEASE}",
            f'write there, in quotes: {RELEASE}: ["2026.11"]',
        ) from None
    return release


def manifest_schema() -> str:
    """The JSON schema of a manifest, as checked in beside this module."""
    schema = Manifest.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def _root(path: Path) -> yaml.Node | None:
    """The file's nodes, which know their lines."""
    return yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)


def _explain(path: Path, error: ValidationError) -> str:
    """One line per wrong field: file, line, field, what is wrong, value."""
    lines, root = [], _root(path)
    for problem in error.errors():
        loc = tuple(part for part in problem["loc"] if part != "[key]")
        field = ".".join(str(part) for part in loc) or "the file"
        given = "" if problem["type"] == "missing" else f", not {problem['input']!r}"
        lines.append(f"{path}:{_line(root, loc)}: field '{field}': {problem['msg']}{given}")
    return "\n".join(lines)


def _hint(error: ValidationError) -> str:
    for problem in error.errors():
        if problem["type"] == "string_type" and isinstance(problem["input"], int | float):
            return f'put the value in quotes: "{problem["input"]}"'
        if problem["type"] == "extra_forbidden":
            return f"the fields are: {', '.join(Manifest.model_fields)}"
    return "the fields are described in scripts/ddlce/model/manifest.py"


def _line(node: Any, loc: tuple[int | str, ...]) -> int:
    """The line of the deepest part of `loc` that the file has; counts from 1."""
    line = node.start_mark.line + 1 if node is not None else 1
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == str(part)]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line
