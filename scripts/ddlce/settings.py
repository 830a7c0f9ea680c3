"""Where things are. One frozen object, made once by the CLI and passed down."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ddlce.errors import InputError

#: The platform that builds run on; compilers, cmake and the like are this machine's.
BUILD_PLATFORM = "linux-64"

#: The package with a C library for the programs of its prefix (recipes/base/glibc), and where it
#: is in there, with their loader. recipes/debs/install_deb.py, which stands alone, says it again.
OWN_GLIBC, OWN_GLIBC_FOLDER = "glibc", "lib/glibc"


@dataclass(frozen=True)
class Settings:
    """The folders that the stages read and write.

    Attributes:
        repo: the distribution's tree (recipes/, envs/, channel/), or None when `ddlce` runs
            from an installed environment, where only the `env` and `module` commands work.
        cache: the user's cache: sources, built packages, logs, rattler's package cache.
        root: where environments, modulefiles and releases are installed.
    """

    repo: Path | None
    cache: Path
    root: Path

    @property
    def tree(self) -> Path:
        """The distribution's tree; an error where there is none."""
        if self.repo is None:
            raise InputError(
                "this command needs the DDL-CE source tree, and none was found",
                "run it inside a clone of DDL-CE, or set DDLCE_REPO to one",
            )
        return self.repo

    @property
    def recipes(self) -> Path:
        """The folder of recipes."""
        return self.tree / "recipes"

    @property
    def channel(self) -> Path:
        """The channel that clients read: subdirs with packages and their index."""
        return Path(os.environ.get("DDLCE_CHANNEL") or self.tree / "channel")

    @property
    def sources(self) -> Path:
        """The source store, by sha256."""
        return self.cache / "sources"

    @property
    def store(self) -> Path:
        """Built packages of every digest; the channel links into it."""
        return self.cache / "packages"

    @property
    def work(self) -> Path:
        """Staging folders of running builds."""
        return self.cache / "build"

    @property
    def logs(self) -> Path:
        """One log file per built package."""
        return self.cache / "logs"

    @property
    def pkgs(self) -> Path:
        """Rattler's cache of unpacked packages; hard-linked into environments."""
        return self.cache / "pkgs"


def find_repo(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a DDL-CE tree, or None."""
    for folder in (start, *start.parents):
        if (folder / "recipes").is_dir() and (folder / "channel" / "channel.yaml").is_file():
            return folder
    return None


def load_settings(root: Path | None = None) -> Settings:
    """Settings from the command line, then the environment, then the defaults.

    Reads DDLCE_REPO, DDLCE_CACHE and DDLCE_ROOT.

    Raises:
        InputError: a path starts with `~NAME`, and there is no such user.
    """
    env = os.environ
    repo = Path(env["DDLCE_REPO"]) if env.get("DDLCE_REPO") else find_repo(Path.cwd())
    home = Path.home()
    cache = Path(env.get("DDLCE_CACHE") or home / ".cache" / "ddl-ce")
    chosen = root or Path(env.get("DDLCE_ROOT") or home / ".local" / "share" / "ddl-ce")
    return Settings(
        repo=repo.resolve() if repo else None,
        cache=_absolute(cache, "DDLCE_CACHE"),
        root=_absolute(chosen, "--root" if root else "DDLCE_ROOT"),
    )


def _absolute(path: Path, argument: str) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError:
        raise InputError(
            f"{argument}: {path}: there is no user {path.parts[0][1:]!r}", "write the whole path"
        ) from None
