"""The view that a rule has: one recipe, its files, and facts of the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from ddlce.model.recipe import flatten

#: The sections of `requirements`, in the order in which they are used.
SECTIONS = ("build", "host", "run", "run_constraints")

#: A Jinja expression of a v1 recipe.
EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


@dataclass(frozen=True)
class Tree:
    """What rules need to know beside the recipe.

    Attributes:
        locked: sha256 of every locked source.
        variants: keys of conda_build_config.yaml.
        registries: host names of this machine's package registries.
        places: folders of this machine that no recipe may name.
    """

    locked: frozenset[str] = frozenset()
    variants: frozenset[str] = frozenset()
    registries: frozenset[str] = frozenset()
    places: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputSection:
    """One package of a recipe: its own section, falling back to the recipe's.

    Attributes:
        data: the section; for a recipe of one package, the whole recipe.
        where: the section's place in the recipe, as keys and indices.
        shared: the whole recipe, for what the section inherits.
    """

    data: dict[str, Any]
    where: tuple[str | int, ...]
    shared: dict[str, Any]

    @property
    def name(self) -> str:
        """The package's name as written, expressions included."""
        return str(as_dict(self.data.get("package")).get("name", ""))

    @property
    def build(self) -> dict[str, Any]:
        """The output's `build`, with the recipe's own for all outputs."""
        return {**as_dict(self.shared.get("build")), **as_dict(self.data.get("build"))}

    @property
    def about(self) -> dict[str, Any]:
        """The output's `about`, with the recipe's own for all outputs."""
        return {**as_dict(self.shared.get("about")), **as_dict(self.data.get("about"))}

    @property
    def sources(self) -> list[dict[str, Any]]:
        """The `source` entries, or the recipe's where the output has none."""
        entry = self.data.get("source") or self.shared.get("source") or []
        return [source for source in flatten(entry) if source]

    def requirements(self, section: str) -> list[str]:
        """The requirements of one section as text; both branches of a condition."""
        requirements = as_dict(self.data.get("requirements"))
        return [item for item in flatten(requirements.get(section)) if isinstance(item, str)]

    @property
    def all_requirements(self) -> Iterator[tuple[str, str]]:
        """(section, text) of every requirement."""
        for section in SECTIONS:
            for text in self.requirements(section):
                yield section, text

    @property
    def compiled(self) -> bool:
        """True when a compiler is among the build requirements."""
        return any("compiler(" in item for item in self.requirements("build"))

    @property
    def noarch(self) -> str | None:
        """`python`, `generic` or None."""
        return self.build.get("noarch")


@dataclass(frozen=True)
class LintedRecipe:
    """A recipe and its files.

    Attributes:
        name: the recipe's name.
        path: recipe.yaml, or the wheels manifest for a generated recipe.
        folder: the recipe's folder.
        data: the recipe as plain data; {} when it is not YAML.
        text: the recipe's text; "" for a generated one.
        files: the files of the recipe and of its local sources.
        tree: what lies beside it.
    """

    name: str
    path: Path
    folder: Path
    data: dict[str, Any]
    text: str = ""
    files: tuple[Path, ...] = ()
    tree: Tree = field(default_factory=Tree)

    @cached_property
    def outputs(self) -> list[OutputSection]:
        """The packages that the recipe makes; staging outputs make none."""
        if "outputs" not in self.data:
            return [OutputSection(self.data, (), {})]
        return [
            OutputSection(output, ("outputs", index), self.data)
            for index, output in enumerate(self.data["outputs"] or ())
            if isinstance(output, dict) and "package" in output
        ]

    @cached_property
    def scripts(self) -> list[Path]:
        """The shell scripts that build: build*.sh, and those named in `build.script`."""
        named = " ".join(str(output.build.get("script", "")) for output in self.outputs)
        return [
            path
            for path in self.files
            if path.parent == self.folder
            and path.suffix == ".sh"
            and (path.name.startswith("build") or path.name in named)
        ]

    @cached_property
    def expressions(self) -> list[tuple[str, int]]:
        """The text and line of every `${{ … }}` outside comments."""
        found = []
        for number, line in enumerate(self.text.splitlines(), 1):
            code = re.sub(r"(^|\s)#.*", "", line)
            found += [(match, number) for match in EXPRESSION.findall(code)]
        return found

    def line(self, *where: str | int) -> int | None:
        """The line of the node at `where`, or of its nearest ancestor that there is."""
        node = self._root
        if node is None:
            return None
        line = node.start_mark.line + 1
        for part in where:
            child = _child(node, part)
            if child is None:
                break
            node, line = child
        return line

    def line_of_key(self, key: str) -> int | None:
        """The line of the first mapping key of this name, anywhere."""
        for number, line in enumerate(self.text.splitlines(), 1):
            if re.search(rf"(^|[\s{{,-])['\"]?{re.escape(key)}['\"]?\s*:", line):
                return number
        return None

    @cached_property
    def _root(self) -> yaml.Node | None:
        try:
            return yaml.compose(self.text, Loader=yaml.SafeLoader) if self.text else None
        except yaml.YAMLError:
            return None


def _child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == part:
                return value, key.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line + 1
    return None


def as_dict(value: Any) -> dict[str, Any]:
    """The mapping, or {} where the recipe has something else (the schema rule says so)."""
    return value if isinstance(value, dict) else {}
