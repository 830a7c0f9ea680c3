"""A small DDL-CE tree with real recipes that build in about a second each, for tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from ddlce.settings import Settings

REPO = Path(__file__).parents[2]
RECIPE = """\
package: {{name: {name}, version: "{version}"}}
build: {{number: 0, string: "h${{{{ digest }}}}_0", noarch: generic, script: build.sh}}
requirements: {{build: [{build}], run: [{run}]}}
about: {{license: MIT, license_file: LICENSE, summary: A toy., homepage: "https://example.org"}}
tests: [{{script: ["{test}"]}}]
extra: {{recipe-maintainers: [ddl-ce]}}
"""

#: Stands for the suite: it writes a report, and ends with this status.
SUITE = """\
mkdir -p $PREFIX/bin
cat > $PREFIX/bin/ddlce-smoke <<'END'
#!/bin/sh
while [ "$1" != --report ]; do shift; done
mkdir -p "$2"
echo page > "$2/report.html"
echo '{{"passed": {passed}}}' > "$2/report.json"
exit {status}
END
chmod +x $PREFIX/bin/ddlce-smoke
"""


@dataclass
class MiniTree:
    """A tree in `folder/repo`, with its cache and root beside it."""

    folder: Path

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def settings(self) -> Settings:
        return Settings(repo=self.repo, cache=self.folder / "cache", root=self.folder / "root")

    def recipe(
        self,
        name: str,
        build: str = "",
        run: str = "",
        script: str = "",
        test: str = "true",
        version: str = "1.0",
    ) -> Path:
        """Write a recipe that installs share/<name>, after `script`; returns its room."""
        room = self.repo / "recipes" / name
        room.mkdir(parents=True, exist_ok=True)
        text = RECIPE.format(name=name, version=version, build=build, run=run, test=test)
        (room / "recipe.yaml").write_text(text)
        (room / "LICENSE").write_text("MIT\n")
        (room / "build.sh").write_text(
            f"set -e\n{script}\nmkdir -p $PREFIX/share\necho {name} > $PREFIX/share/{name}\n"
        )
        return room

    def lock_sources(self, sources: list[dict[str, object]]) -> None:
        """Write sources.lock."""
        (self.repo / "sources.lock").write_text(yaml.safe_dump({"sources": sources}))

    def env(self, **extra: str) -> dict[str, str]:
        """The environment in which `ddlce` works on this tree, and publishes in it alone."""
        return {name: value for name, value in os.environ.items() if name != "DDLCE_CHANNEL"} | {
            "DDLCE_REPO": str(self.repo),
            "DDLCE_CACHE": str(self.folder / "cache"),
            "DDLCE_ROOT": str(self.folder / "root"),
            "COLUMNS": "200",
            **extra,
        }

    def start(self, *args: str, **extra: str) -> subprocess.Popen[str]:
        """Start `ddlce ARGS` on this tree in its own process group."""
        return subprocess.Popen(
            [sys.executable, "-m", "ddlce", *args],
            env=self.env(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.repo,
            start_new_session=True,
        )

    def ddlce(self, *args: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run `ddlce ARGS` on this tree; the result's streams are text."""
        process = self.start(*args, **extra)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def packages(self) -> dict[str, bytes]:
        """File name → bytes of every package in the store."""
        found = (self.folder / "cache" / "packages").glob("*/*.conda")
        return {path.name: path.read_bytes() for path in found}


def make_tree(folder: Path) -> MiniTree:
    """A tree of three recipes: `base`, `lib` (built with base), `app` (runs with lib)."""
    tree = MiniTree(folder)
    (tree.repo / "channel").mkdir(parents=True)
    (tree.repo / "channel" / "channel.yaml").write_text("name: toys\n")
    (tree.repo / "recipes").mkdir()
    (tree.repo / "recipes" / "conda_build_config.yaml").write_text("toy_variant: ['1']\n")
    tree.lock_sources([])
    tree.recipe("base")
    tree.recipe("lib", build="base", script="test -f $BUILD_PREFIX/share/base")
    tree.recipe("app", run="lib", test="test -f $PREFIX/share/lib")
    return tree


def suite_release(tree: MiniTree, version: str, *, passes: bool = True) -> None:
    """Write the manifest `toys` of a release whose suite passes, or does not."""
    shutil.copy(REPO / "channel" / "condarc.j2", tree.repo / "channel")
    (tree.repo / "envs").mkdir(exist_ok=True)
    script = SUITE.format(passed=str(passes).lower(), status=int(not passes))
    recipe = tree.recipe("suite", script=f"{script}: {version}") / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("noarch: generic, ", ""))  # of this platform
    tree.recipe("app", run="lib, suite", test="test -f $PREFIX/share/lib")
    (tree.repo / "envs" / "toys.yaml").write_text(
        f'name: toys\nrelease: "{version}"\nsummary: Toys.\n'
        'platforms: {linux-64: {glibc: "2.28"}}\nspecs: [app]\n'
    )
