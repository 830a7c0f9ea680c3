"""MkDocs' hooks: the pages from outside docs/, and links to files that are no pages."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

from figures import with_pictures
from module_map import page as page_of_modules

REPO = Path(__file__).parents[2]

#: Page → the file in the repository's root that it shows.
PAGES = {
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security-policy.md": "SECURITY.md",
}
ASSETS = REPO / "build" / "docs-assets"

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from the root and of the code, and the programs that show figures."""
    for page, name in PAGES.items():
        files.append(File.generated(config, page, content=(REPO / name).read_text()))
    catalogue = json.loads((ASSETS / "catalogue.json").read_text())
    files.append(File.generated(config, "catalogue.md", content=catalogue_page(catalogue)))
    files.append(File.generated(config, "modules.md", content=page_of_modules()))
    for path in (*sorted(ASSETS.glob("*.js")), *sorted(Path(__file__).parent.glob("*.css"))):
        files.append(File.generated(config, f"assets/{path.name}", abs_src_path=str(path)))
    return files


def catalogue_page(catalogue: dict[str, list[dict[str, Any]]]) -> str:
    """The page of all packages, from what `ddlce catalogue --json` says."""
    rows = [
        f"| {each['name']} | {each['version']} | {each['licence']} | {each['origin']} "
        f"| {', '.join(each['environments'])} |"
        for each in catalogue["packages"]
    ]
    absent = [
        f"| {each['name']} | {each['where'] or 'everywhere'} | {' '.join(each['why'].split())} |"
        for each in catalogue["absent"]
    ]
    return "\n".join(
        [
            "# Catalogue",
            "",
            "All packages that the locks have. `ddlce catalogue NAME` shows one, with its tests. "
            "The origin is that of its files: `source` for source code, which is compiled here; "
            "`wheel` for a wheel of PyPI; `NVIDIA` for one of NVIDIA; `Debian` for a Debian "
            "package. Two origins are those of two platforms or builds, or of two parts.",
            "",
            "| package | version | licence | origin | environments |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## Absent",
            "",
            "| package | where | why |",
            "|---|---|---|",
            *absent,
            "",
        ]
    )


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to pages; a link to another file of the repository becomes its name."""
    name = page.file.src_uri
    # Where the file lies in the repository decides what its links mean there.
    source = PAGES.get(name) or f"docs/{name}"
    pages = {source: page for page, source in PAGES.items()}

    def moved(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return match[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        where = pages.get(there) or there.removeprefix("docs/")
        if there in pages or there.startswith("docs/"):
            link = posixpath.relpath(where, posixpath.dirname(name) or ".")
            return f"[{text}]({link}{'#' + anchor if anchor else ''})"
        return f"`{there}`" if text == there else f"{text} (`{there}`)"

    return LINK.sub(moved, with_pictures(markdown))
