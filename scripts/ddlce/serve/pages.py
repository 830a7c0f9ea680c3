"""The human pages: HTML from the templates in `channel/pages`, everything escaped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import FileSystemLoader
from jinja2.sandbox import SandboxedEnvironment

from ddlce.catalogue import Listed, Missing
from ddlce.errors import InputError
from ddlce.model.channel import Channel
from ddlce.serve.catalogue import Package

TEMPLATES = ("index.html.j2", "package.html.j2", "base.html.j2", "style.css")


class Pages:
    """The templates of one channel, loaded once.

    Args:
        folder: where the templates lie.
        channel: the channel's description, shown on every page.
        absent: what the channel does not have, with the reasons, for its own page.
        listed: what the locked environments have of it.

    Raises:
        InputError: a template is missing.
    """

    def __init__(
        self,
        folder: Path,
        channel: Channel,
        absent: Sequence[Missing] = (),
        listed: Sequence[Listed] = (),
    ) -> None:
        for name in TEMPLATES:
            if not (folder / name).is_file():
                raise InputError(f"no page template {folder / name}", "restore it from git")
        self._env = SandboxedEnvironment(
            loader=FileSystemLoader(folder),
            autoescape=True,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._env.filters["bytes"] = human_bytes
        self._env.filters["name"] = lambda spec: spec.split()[0]
        self._env.filters["constraint"] = lambda spec: spec.partition(" ")[2]
        self._env.globals["channel"] = channel
        self._env.globals["absent"] = absent
        versions: dict[str, list[Listed]] = {}
        for each in listed:
            versions.setdefault(each.name, []).append(each)
        self._env.globals["listed"] = versions

    def index(
        self,
        packages: dict[str, Package],
        url: str,
        subdirs: list[str],
        sboms: Sequence[str] = (),
    ) -> str:
        """The list of all packages.

        Args:
            packages: by name.
            url: the channel's address as the reader reached it.
            subdirs: those that have an index.
            sboms: the files with releases' bills of materials.
        """
        return self._env.get_template("index.html.j2").render(
            packages=packages, url=url, subdirs=subdirs, sboms=sboms
        )

    def package(self, package: Package, known: dict[str, Package], url: str) -> str:
        """One package's page; dependencies that are `known` in the channel become links."""
        return self._env.get_template("package.html.j2").render(
            package=package, known=known, url=url
        )


def human_bytes(count: int) -> str:
    """A size for people, in powers of 1000: 999 B, 1.0 kB, 21.3 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
