"""Where things are. One frozen object, made once by the CLI and passed down."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ddlce.errors import InputError
from ddlce.ownership import check_place, others_may_change
from ddlce.programs import absolute_only
from ddlce.userpath import absolute

#: The folders with the machine's programs, where DDLCE_BUILD_PATH names no others.
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

#: Where releases are installed, where nothing names another folder.
DEFAULT_ROOT = "~/.local/share/ddl-ce"

#: Says of an environment of ours what it is, see `ddlce.env.layout.Origin`.
ORIGIN = Path("conda-meta", "ddl-ce.origin")

#: Digits of the lock's digest in the name of a release's folder.
FOLDER_DIGITS = 8

#: The file of the locked sources, in the tree and in a folder of sources.
SOURCES_LOCK = "sources.lock"

#: The package with a C library for the programs of its prefix (recipes/base/glibc), and where it
#: is in there, with their loader. recipes/debs/relocate.py, which stands alone, says it again.
OWN_GLIBC, OWN_GLIBC_FOLDER = "glibc", "lib/glibc"


def build_path() -> str:
    """Where builds look for the machine's programs; the user's own PATH stays out of packages.

    Of SYSTEM_PATH, a build's script finds a few (see `ddlce.builder.machine`); of the folders that
    DDLCE_BUILD_PATH names, all.
    """
    return absolute_only(os.environ.get("DDLCE_BUILD_PATH") or SYSTEM_PATH)


@dataclass(frozen=True)
class Settings:
    """The folders that the stages read and write.

    Attributes:
        repo: the distribution's tree (recipes/, envs/, channel/), or None when `ddlce` runs
            from an installed environment, where only the `env` and `module` commands work.
        cache: the user's cache: sources, built packages, logs, rattler's package cache.
        root: where environments, modulefiles and releases are installed.
        refused: why a tree that was found is not `repo`: another user could have put code there.
    """

    repo: Path | None
    cache: Path
    root: Path
    refused: str | None = None

    @property
    def tree(self) -> Path:
        """The distribution's tree; an error where there is none."""
        if self.refused:
            raise InputError(
                f"the DDL-CE tree here is not used, since {self.refused}",
                "if you trust whoever that is, say so: set DDLCE_REPO to the tree's path",
            )
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
    def sources_lock(self) -> Path:
        """The locked sources, each with its sha256."""
        return self.tree / SOURCES_LOCK

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


#: What of a tree is asked for its owner: whoever may write one of these decides what is read.
PARTS = (".", "recipes", "channel", "channel/channel.yaml", "channel/condarc.j2", "envs")


def find_repo(start: Path) -> Path | None:
    """The nearest folder at or above `start` that holds a DDL-CE tree, or None."""
    for folder in (start, *start.parents):
        if (folder / "recipes").is_dir() and (folder / "channel" / "channel.yaml").is_file():
            return folder
    return None


def doubts(repo: Path) -> str | None:
    """Why a tree is not to be trusted unless its user names it: its recipes are code."""
    for name in PARTS:
        if os.path.lexists(repo / name) and (reason := others_may_change(repo / name)):
            return reason
    return None


def own_root() -> Path | None:
    """The root of the environment that this very program is installed in; None elsewhere.

    So that a site's users and admins, who have loaded its module, need not tell its root.
    """
    pkgs = _own_origin().get("pkgs")
    return Path(pkgs).parent if isinstance(pkgs, str) else None


def own_release() -> str | None:
    """The release that this very program is part of, as `ddl-ce 2026.11-58402630`, or None."""
    origin = _own_origin()
    env, release, digest = (origin.get(name) for name in ("env", "release", "digest"))
    if not (env and release and digest):
        return None
    return f"{env} {release_folder(str(release), str(digest))}"


def release_folder(release: str, digest: str) -> str:
    """The name of a release's folder, `2026.11-58402630`; `env default` and overlays read it.

    Args:
        release: its version.
        digest: of its lock.
    """
    return f"{release}-{digest[:FOLDER_DIGITS]}"


def _own_origin() -> dict[str, object]:
    """What the environment of this program says of itself; nothing elsewhere."""
    try:
        origin = json.loads(Path(sys.prefix, ORIGIN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return origin if isinstance(origin, dict) else {}


def load_settings(root: Path | None = None) -> Settings:
    """Settings from the command line, then the environment, then the defaults.

    Reads DDLCE_REPO, DDLCE_CACHE and DDLCE_ROOT. Links in a root's path are followed, so that an
    environment has one path only: its files hold it.

    Raises:
        InputError: a path starts with `~NAME`, and there is no such user.
        MachineError: this user has no home, where one is needed, or others could change the cache,
            or the root (see `ddlce.ownership`).
    """
    env = os.environ
    named = env.get("DDLCE_REPO")
    repo = Path(named) if named else find_repo(Path.cwd())
    refused = doubts(repo) if repo and not named else None
    cache = absolute(env.get("DDLCE_CACHE") or "~/.cache/ddl-ce", "DDLCE_CACHE")
    chosen = root or env.get("DDLCE_ROOT") or own_root() or DEFAULT_ROOT
    chosen = absolute(chosen, "--root" if root else "DDLCE_ROOT")
    check_place(cache, "the cache")
    check_place(chosen, "the root", site=True)
    return Settings(
        repo=repo.resolve() if repo and not refused else None,
        cache=cache,
        root=Path(os.path.realpath(chosen)),
        refused=refused,
    )
